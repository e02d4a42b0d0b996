-- A page of an inbox after $3, at most $4.
SELECT tenant, session_id, {item}
FROM inbox
WHERE tenant = $1 AND session_id = $2 AND n > $3
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY n
LIMIT $4;
