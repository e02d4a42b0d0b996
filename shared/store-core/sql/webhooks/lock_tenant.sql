-- A tenant, unless it was deleted. One writer at a time keeps others from changing it here.
SELECT tenant FROM tenants WHERE tenant = $1 AND deleted_at IS NULL;
