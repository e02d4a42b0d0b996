-- The tenants' settings of pools, by the primary key.
SELECT tenant, pools FROM tenants WHERE pools IS NOT NULL AND deleted_at IS NULL ORDER BY tenant;
