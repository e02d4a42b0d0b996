-- A tenant, unless it was deleted.
SELECT tenant, name, limits, weight, retention, pools, erasing_at, created_at
FROM tenants WHERE tenant = $1 AND deleted_at IS NULL;
