-- What counts against the limits of the tenant $1 on the day $3, in the month from the day $2 on,
-- and in the minute that begins at $4: number of rows, the last day with a row, the last minute
-- that was counted, and sums. By the primary keys.
SELECT
    count(*) AS days,
    coalesce(max(d.day), -1) AS last_day,
    coalesce(max(CASE WHEN d.day = $3 THEN d.minute ELSE 0 END), 0) AS minute,
    CAST(coalesce(sum(CASE WHEN d.day = $3 THEN d.minute_spent ELSE 0 END), 0) AS INTEGER) AS of_minute,
    CAST(coalesce(sum(CASE WHEN d.day = $3 THEN d.spent ELSE 0 END), 0) AS INTEGER) AS today,
    CAST(coalesce(sum(d.spent), 0) AS INTEGER) AS of_month,
    CAST(coalesce(sum(CASE WHEN d.day = $3 THEN d.tokens ELSE 0 END), 0) AS INTEGER) AS tokens_today,
    CAST(coalesce(sum(d.tokens), 0) AS INTEGER) AS tokens_of_month,
    (SELECT CAST(coalesce(sum(a.amount), 0) AS INTEGER) FROM money_aside a WHERE a.tenant = $1) AS aside,
    (SELECT CAST(coalesce(sum(a.amount), 0) AS INTEGER) FROM money_aside a WHERE a.tenant = $1 AND a.at >= $4)
        AS minute_aside,
    (SELECT CAST(coalesce(sum(a.tokens), 0) AS INTEGER) FROM money_aside a WHERE a.tenant = $1) AS tokens_aside
FROM money_days d
WHERE d.tenant = $1 AND d.day >= $2 AND d.day <= $3;
