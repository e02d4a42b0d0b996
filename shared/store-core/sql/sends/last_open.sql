-- The last open sends of a session, at most $3, by sends_open: those without a position first.
SELECT send_id, position FROM sends
WHERE tenant = $1 AND session_id = $2 AND finished_at IS NULL
ORDER BY position IS NOT NULL, position DESC, send_id DESC
LIMIT $3;
