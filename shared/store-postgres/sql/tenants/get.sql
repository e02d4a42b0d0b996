-- A tenant, unless it was deleted.
-- Index: tenants_pkey.
SELECT t.tenant, t.name, t.limits, t.weight, t.retention, t.pools, t.erasing_at, t.created_at
FROM tenants t WHERE t.tenant = $1::integer AND t.deleted_at IS NULL
