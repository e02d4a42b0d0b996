-- The tenants' settings of pools. Index: tenants_pools.
SELECT t.tenant, t.pools FROM tenants t WHERE t.pools IS NOT NULL AND t.deleted_at IS NULL ORDER BY t.tenant
