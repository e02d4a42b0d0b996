-- Removes the reservations of calls of a tenant, in its account and in those of its agents. Each
-- call cost and took what is given, or else all that was reserved. This counts as spent on its day,
-- and in the counted minute of that day if the call began in it. Index: money_aside_pkey,
-- money_days_pkey, agent_money_aside_pkey, agent_money_days_pkey.
WITH asked AS (
    SELECT e.call_id, e.cost, e.tokens
    FROM unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS e (call_id, cost, tokens)
),
gone AS (
    DELETE FROM money_aside a
    USING asked e
    WHERE a.tenant = $1::integer AND a.call_id = e.call_id
    RETURNING
        a.day, a.at / 60000 AS minute, coalesce(e.cost, a.amount) AS cost, coalesce(e.tokens, a.tokens) AS tokens
),
agent_gone AS (
    DELETE FROM agent_money_aside a
    USING asked e
    WHERE a.tenant = $1::integer AND a.call_id = e.call_id
    RETURNING
        a.holder, a.day, a.at / 60000 AS minute, coalesce(e.cost, a.amount) AS cost,
        coalesce(e.tokens, a.tokens) AS tokens
),
agents AS (
    UPDATE agent_money_days d SET
        spent = d.spent + g.cost,
        tokens = d.tokens + g.tokens,
        minute_spent = d.minute_spent + (
            SELECT coalesce(sum(o.cost), 0)::bigint FROM agent_gone o
            WHERE o.holder = d.holder AND o.day = d.day AND o.minute = d.minute
        )
    FROM (
        SELECT o.holder, o.day, sum(o.cost)::bigint AS cost, sum(o.tokens)::bigint AS tokens
        FROM agent_gone o GROUP BY o.holder, o.day
    ) g
    WHERE d.tenant = $1::integer AND d.holder = g.holder AND d.day = g.day
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
