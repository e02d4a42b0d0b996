-- Records how far the erasure of a tenant has got.
-- Index: tenants_pkey.
UPDATE tenants t SET erasure = $2::text WHERE t.tenant = $1::integer
