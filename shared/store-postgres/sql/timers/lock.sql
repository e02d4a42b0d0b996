-- Reads timers by id and locks them in key order.
-- Index: timers_pkey.
SELECT
    {t.timer}
FROM (
    SELECT DISTINCT i.tenant, i.timer_id
    FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, timer_id)
) i
JOIN timers t ON t.tenant = i.tenant AND t.timer_id = i.timer_id
ORDER BY t.tenant, t.timer_id
FOR UPDATE OF t
