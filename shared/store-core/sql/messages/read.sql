-- A page of a transcript after $3, at most $4.
SELECT tenant, session_id, {message}
FROM messages
WHERE tenant = $1 AND session_id = $2 AND seq > $3
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY seq
LIMIT $4;
