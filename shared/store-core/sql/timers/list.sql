-- A tenant's timers, newest first, older than $2, of status $3 or any, at most $4.
SELECT {timer}
FROM timers
WHERE tenant = $1 AND ($2 IS NULL OR timer_id < $2) AND ($3 IS NULL OR status = $3)
ORDER BY timer_id DESC
LIMIT $4;
