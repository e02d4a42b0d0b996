-- Tenants whose limits name money, or tokens of more than a minute.
SELECT tenant FROM tenants
WHERE (limits LIKE '%"usd_per_%' OR limits LIKE '%"tokens_per_day"%' OR limits LIKE '%"tokens_per_month"%')
  AND deleted_at IS NULL
ORDER BY tenant;
