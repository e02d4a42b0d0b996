-- A timer, by id.
SELECT {timer}
FROM timers
WHERE tenant = $1 AND timer_id = $2;
