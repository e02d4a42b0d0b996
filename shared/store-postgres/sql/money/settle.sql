-- Calls of a tenant have nothing set aside any more; each cost what is said, or all of it. On each day, that is
-- spent. Index: money_aside_pkey, money_days_pkey.
WITH gone AS (
    DELETE FROM money_aside a
    USING unnest($2::uuid[], $3::bigint[]) AS e (call_id, cost)
    WHERE a.tenant = $1::integer AND a.call_id = e.call_id
    RETURNING a.day, coalesce(e.cost, a.amount) AS cost
)
UPDATE money_days d SET spent = d.spent + g.cost
FROM (SELECT o.day, sum(o.cost)::bigint AS cost FROM gone o GROUP BY o.day) g
WHERE d.tenant = $1::integer AND d.day = g.day
