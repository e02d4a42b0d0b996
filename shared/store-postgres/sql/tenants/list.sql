-- Tenants by number.
-- Index: tenants_pkey.
SELECT t.tenant, t.name, t.limits, t.weight, t.retention, t.pools, t.erasing_at, t.created_at
FROM tenants t
WHERE t.deleted_at IS NULL AND t.tenant > $1::integer
ORDER BY t.tenant
LIMIT $2::bigint
