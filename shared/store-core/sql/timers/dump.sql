-- Every timer.
SELECT {timer}
FROM timers
ORDER BY tenant, timer_id;
