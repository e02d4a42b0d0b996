-- Steps of a session after $3, at most $4.
SELECT tenant, session_id, {step}
FROM steps
WHERE tenant = $1 AND session_id = $2 AND n > $3
ORDER BY n
LIMIT $4;
