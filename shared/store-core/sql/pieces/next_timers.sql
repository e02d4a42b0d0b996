-- The next timers from $2 of the tenant $1 on, by the primary key. What is left of a tenant that is
-- being erased is inconsistent, and skipped.
SELECT r.tenant, r.timer_id AS id FROM timers r
WHERE (r.tenant, r.timer_id) >= ($1, $2)
  AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.tenant = r.tenant AND t.erasing_at IS NOT NULL)
ORDER BY r.tenant, r.timer_id
LIMIT $3;
