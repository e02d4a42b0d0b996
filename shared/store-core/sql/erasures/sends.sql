-- The next sends after $3, at most $4.
SELECT send_id FROM sends
WHERE session_id = $2 AND tenant = $1 AND send_id > $3
ORDER BY send_id
LIMIT $4;
