-- Every tenant that was not deleted, except the first one.
SELECT t.tenant FROM tenants t WHERE t.tenant > 1 AND t.deleted_at IS NULL ORDER BY t.tenant
