-- How far the erasure of a tenant has got.
-- Index: tenants_pkey.
SELECT t.tenant, t.erasing_at, t.erased_at, t.erasure
FROM tenants t WHERE t.tenant = $1::integer AND t.erasing_at IS NOT NULL
