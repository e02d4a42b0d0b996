-- Calls with a reservation, of their tenant or their agent, whose boots have no lease, or that
-- began more than $2 milliseconds ago. There are as many as calls in flight. Index:
-- money_aside_pkey, agent_money_aside_pkey, boots_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
aside AS (
    SELECT a.tenant, a.call_id, a.boot_id, a.at FROM money_aside a
    UNION ALL
    SELECT g.tenant, g.call_id, g.boot_id, g.at FROM agent_money_aside g
)
SELECT DISTINCT a.tenant, a.call_id
FROM aside a CROSS JOIN clock c
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
