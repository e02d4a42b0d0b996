-- The timers of the session $5, newest first, older than $2, of status $3 or any, at most $4, by
-- timers_session.
SELECT {timer}
FROM timers
WHERE tenant = $1 AND session_id = $5 AND ($2 IS NULL OR timer_id < $2)
  AND ($3 IS NULL OR status = $3)
ORDER BY timer_id DESC
LIMIT $4;
