-- Tenants whose limits, or those of one of their agents, include money, or tokens over more than a
-- minute.
-- Index: tenants_money, tenants_tokens, agents_money.
SELECT t.tenant FROM tenants t WHERE t.limits LIKE '%"usd_per_%' AND t.deleted_at IS NULL
UNION
SELECT t.tenant FROM tenants t
WHERE (t.limits LIKE '%"tokens_per_day"%' OR t.limits LIKE '%"tokens_per_month"%') AND t.deleted_at IS NULL
UNION
SELECT g.tenant FROM agents_named g
WHERE g.limits LIKE '%"usd_per_%' OR g.limits LIKE '%"tokens_per_day"%' OR g.limits LIKE '%"tokens_per_month"%'
ORDER BY tenant
