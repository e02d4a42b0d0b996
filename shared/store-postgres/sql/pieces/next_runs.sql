-- The next runs from $2 of the tenant $1 on. What is left of a tenant that is being erased is
-- inconsistent, and skipped.
-- Index: runs_pkey, tenants_pkey.
SELECT r.tenant, r.run_id AS id
FROM runs r
WHERE (r.tenant, r.run_id) >= ($1::integer, $2::uuid)
  AND NOT EXISTS (SELECT FROM tenants t WHERE t.tenant = r.tenant AND t.erasing_at IS NOT NULL)
ORDER BY r.tenant, r.run_id
LIMIT $3::bigint
