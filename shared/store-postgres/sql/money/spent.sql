-- What counts against the limits of a tenant on the day $3, in the month from the day $2 on, and in
-- the minute that begins at $4: number of rows, the last day with a row, the last minute that was
-- counted, and sums.
-- Index: money_days_pkey, money_aside_pkey.
SELECT
    count(*) AS days,
    coalesce(max(d.day), -1) AS last_day,
    coalesce(max(d.minute) FILTER (WHERE d.day = $3::bigint), 0) AS minute,
    coalesce(sum(d.minute_spent) FILTER (WHERE d.day = $3::bigint), 0)::bigint AS of_minute,
    coalesce(sum(d.spent) FILTER (WHERE d.day = $3::bigint), 0)::bigint AS today,
    coalesce(sum(d.spent), 0)::bigint AS of_month,
    coalesce(sum(d.tokens) FILTER (WHERE d.day = $3::bigint), 0)::bigint AS tokens_today,
    coalesce(sum(d.tokens), 0)::bigint AS tokens_of_month,
    (
        SELECT coalesce(sum(a.amount), 0)::bigint FROM money_aside a WHERE a.tenant = $1::integer
    ) AS aside,
    (
        SELECT coalesce(sum(a.amount), 0)::bigint FROM money_aside a
        WHERE a.tenant = $1::integer AND a.at >= $4::bigint
    ) AS minute_aside,
    (
        SELECT coalesce(sum(a.tokens), 0)::bigint FROM money_aside a WHERE a.tenant = $1::integer
    ) AS tokens_aside
FROM money_days d
WHERE d.tenant = $1::integer AND d.day >= $2::bigint AND d.day <= $3::bigint
