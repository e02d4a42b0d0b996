-- Removes everything of a session but its tombstone, its sends and its steps.
DELETE FROM usage_rows WHERE tenant = $1 AND send_id IN (
    SELECT send_id FROM sends WHERE tenant = $1 AND session_id = $2
);
DELETE FROM tool_calls WHERE tenant = $1 AND session_id = $2;
DELETE FROM messages WHERE tenant = $1 AND session_id = $2;
DELETE FROM agents WHERE tenant = $1 AND session_id = $2;
DELETE FROM sessions WHERE tenant = $1 AND session_id = $2;
