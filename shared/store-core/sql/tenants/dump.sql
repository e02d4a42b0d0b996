-- Every tenant that was not deleted, except the first one.
SELECT tenant FROM tenants WHERE tenant > 1 AND deleted_at IS NULL ORDER BY tenant;
