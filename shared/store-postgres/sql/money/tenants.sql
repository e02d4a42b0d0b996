-- Tenants whose limits name money. Index: tenants_money.
SELECT t.tenant FROM tenants t WHERE t.limits LIKE '%"usd_per_%' AND t.deleted_at IS NULL ORDER BY t.tenant
