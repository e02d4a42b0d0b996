-- Calls that have money set aside whose boots have no lease, or that began more than $2 milliseconds ago. There are
-- as many as are under way. Index: money_aside_pkey, boots_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
SELECT a.tenant, a.call_id
FROM money_aside a CROSS JOIN clock c
WHERE (
    a.at < c.now - $2::bigint
    OR NOT EXISTS (
        SELECT FROM boots b
        WHERE b.boot_id = a.boot_id AND b.dead_at IS NULL AND b.lease_until >= c.now
    )
)
AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = a.tenant)
ORDER BY a.tenant, a.call_id
LIMIT $3::bigint
