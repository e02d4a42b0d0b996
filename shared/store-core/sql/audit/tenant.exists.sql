-- Tenants that do not exist or were deleted, but have something in use.
SELECT json_object('tenant', x.tenant)
FROM (
    SELECT s.tenant FROM sessions s
    UNION SELECT r.tenant FROM runs r
    UNION SELECT t.tenant FROM timers t WHERE t.ended_at IS NULL
    UNION SELECT g.tenant FROM agents_named g
    UNION SELECT k.tenant FROM skills k
    UNION SELECT m.tenant FROM memories m
) x
LEFT JOIN tenants o ON o.tenant = x.tenant AND o.deleted_at IS NULL
WHERE o.tenant IS NULL
ORDER BY x.tenant
LIMIT $1;
