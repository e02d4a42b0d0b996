-- A page of the undelivered items of an inbox after $3, at most $4, by inbox_pending.
SELECT tenant, session_id, {item}
FROM inbox
WHERE tenant = $1 AND session_id = $2 AND fate = 'pending' AND n > $3
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY n
LIMIT $4;
