-- Every timer.
SELECT
    0::bigint AS ord, {t.timer}
FROM timers t
ORDER BY t.tenant, t.timer_id
