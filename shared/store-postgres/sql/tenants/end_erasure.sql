-- Ends the erasure of a tenant. What is left is its number, and how much was removed.
-- Index: tenants_pkey.
UPDATE tenants t SET erased_at = $2::bigint, limits = '{}', retention = NULL, weight = 1
WHERE t.tenant = $1::integer
