-- Tenants by number, after $1, at most $2.
SELECT tenant, name, limits, weight, retention, pools, erasing_at, created_at FROM tenants
WHERE deleted_at IS NULL AND tenant > $1
ORDER BY tenant
LIMIT $2;
