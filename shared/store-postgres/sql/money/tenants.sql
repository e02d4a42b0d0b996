-- Tenants whose limits name money, or tokens of more than a minute. Index: tenants_money, tenants_tokens.
SELECT t.tenant FROM tenants t WHERE t.limits LIKE '%"usd_per_%' AND t.deleted_at IS NULL
UNION
SELECT t.tenant FROM tenants t
WHERE (t.limits LIKE '%"tokens_per_day"%' OR t.limits LIKE '%"tokens_per_month"%') AND t.deleted_at IS NULL
ORDER BY tenant
