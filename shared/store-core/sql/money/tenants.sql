-- Tenants whose limits, or those of one of their agents, include money, or tokens over more than a
-- minute.
SELECT tenant FROM tenants
WHERE (limits LIKE '%"usd_per_%' OR limits LIKE '%"tokens_per_day"%' OR limits LIKE '%"tokens_per_month"%')
  AND deleted_at IS NULL
UNION
SELECT tenant FROM agents_named
WHERE limits IS NOT NULL
  AND (limits LIKE '%"usd_per_%' OR limits LIKE '%"tokens_per_day"%' OR limits LIKE '%"tokens_per_month"%')
ORDER BY tenant;
