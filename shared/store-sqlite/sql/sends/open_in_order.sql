-- The open sends of a session by place, those without one behind, in the order of their ids.
SELECT send_id FROM sends
WHERE tenant = $1 AND session_id = $2 AND finished_at IS NULL
ORDER BY position IS NULL, position, send_id;
