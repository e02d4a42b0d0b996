-- Calls of a tenant have nothing set aside any more; each cost and took what is said, or all of it. On each day, that
-- is spent, and in the minute that is counted of it. Index: money_aside_pkey, money_days_pkey.
WITH gone AS (
    DELETE FROM money_aside a
    USING unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS e (call_id, cost, tokens)
    WHERE a.tenant = $1::integer AND a.call_id = e.call_id
    RETURNING
        a.day, a.at / 60000 AS minute, coalesce(e.cost, a.amount) AS cost, coalesce(e.tokens, a.tokens) AS tokens
)
UPDATE money_days d SET
    spent = d.spent + g.cost,
    tokens = d.tokens + g.tokens,
    minute_spent = d.minute_spent
        + (SELECT coalesce(sum(o.cost), 0)::bigint FROM gone o WHERE o.day = d.day AND o.minute = d.minute)
FROM (
    SELECT o.day, sum(o.cost)::bigint AS cost, sum(o.tokens)::bigint AS tokens FROM gone o GROUP BY o.day
) g
WHERE d.tenant = $1::integer AND d.day = g.day
