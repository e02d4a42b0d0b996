-- A tenant, unless it was deleted; locked.
SELECT tenant FROM tenants WHERE tenant = $1 AND deleted_at IS NULL {lock};
