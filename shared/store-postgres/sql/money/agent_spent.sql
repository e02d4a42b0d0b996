-- What counts against the limits of an agent on the day $4, in the month from the day $3 on, and in
-- the minute that begins at $5: number of rows, the last day with a row, the last minute that was
-- counted, and sums. Index: agent_money_days_pkey, and agent_money_aside_pkey, of the tenant's
-- calls in flight, which are few.
SELECT
    count(*) AS days,
    coalesce(max(d.day), -1) AS last_day,
    coalesce(max(d.minute) FILTER (WHERE d.day = $4::bigint), 0) AS minute,
    coalesce(sum(d.minute_spent) FILTER (WHERE d.day = $4::bigint), 0)::bigint AS of_minute,
    coalesce(sum(d.spent) FILTER (WHERE d.day = $4::bigint), 0)::bigint AS today,
    coalesce(sum(d.spent), 0)::bigint AS of_month,
    coalesce(sum(d.tokens) FILTER (WHERE d.day = $4::bigint), 0)::bigint AS tokens_today,
    coalesce(sum(d.tokens), 0)::bigint AS tokens_of_month,
    (
        SELECT coalesce(sum(a.amount), 0)::bigint FROM agent_money_aside a
        WHERE a.tenant = $1::integer AND a.holder = $2::uuid
    ) AS aside,
    (
        SELECT coalesce(sum(a.amount), 0)::bigint FROM agent_money_aside a
        WHERE a.tenant = $1::integer AND a.holder = $2::uuid AND a.at >= $5::bigint
    ) AS minute_aside,
    (
        SELECT coalesce(sum(a.tokens), 0)::bigint FROM agent_money_aside a
        WHERE a.tenant = $1::integer AND a.holder = $2::uuid
    ) AS tokens_aside
FROM agent_money_days d
WHERE d.tenant = $1::integer AND d.holder = $2::uuid AND d.day >= $3::bigint AND d.day <= $4::bigint
