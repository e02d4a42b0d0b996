-- A session's sends, newest first, older than $2, of status $3 or any, at most $4, by
-- sends_session.
SELECT {send}
FROM sends
WHERE tenant = $1 AND session_id = $5 AND ($2 IS NULL OR send_id < $2)
  AND ($3 IS NULL OR status = $3)
ORDER BY send_id DESC
LIMIT $4;
