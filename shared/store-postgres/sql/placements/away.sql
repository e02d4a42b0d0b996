-- The tenants that are not on this database, of which there are some hundreds at most.
SELECT a.tenant FROM tenants_away a ORDER BY a.tenant
