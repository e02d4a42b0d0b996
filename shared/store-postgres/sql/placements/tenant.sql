-- What a database has to know of a tenant that moves to it.
-- Index: tenants_pkey.
SELECT t.limits, t.weight, t.retention, t.pools, t.created_at, t.erasing_at, t.erased_at, t.erasure
FROM tenants t WHERE t.tenant = $1::integer AND t.deleted_at IS NULL
