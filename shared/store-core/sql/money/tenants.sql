-- Tenants whose limits name money.
SELECT tenant FROM tenants WHERE limits LIKE '%"usd_per_%' AND deleted_at IS NULL ORDER BY tenant;
