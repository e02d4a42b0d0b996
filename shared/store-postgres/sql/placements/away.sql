-- The tenants that are not on this database: some hundreds at most.
SELECT a.tenant FROM tenants_away a ORDER BY a.tenant
