-- The next sessions from $2 of the tenant $1 on. What is left of a tenant that is being erased is
-- inconsistent, and skipped.
-- Index: session_hot_pkey, tenants_pkey.
SELECT r.tenant, r.session_id AS id
FROM session_hot r
WHERE (r.tenant, r.session_id) >= ($1::integer, $2::uuid)
  AND NOT EXISTS (SELECT FROM tenants t WHERE t.tenant = r.tenant AND t.erasing_at IS NOT NULL)
ORDER BY r.tenant, r.session_id
LIMIT $3::bigint
