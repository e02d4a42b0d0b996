-- Removes everything of a session but its tombstone, its sends and its steps. A send's calls are a
-- range of their key.
DELETE FROM usage_rows WHERE tenant = $1 AND send_id IN (
    SELECT send_id FROM sends WHERE tenant = $1 AND session_id = $2
);
DELETE FROM tool_calls WHERE rowid IN (
    SELECT c.rowid
    FROM sends s
    JOIN tool_calls c ON c.tenant = s.tenant
                     AND c.call_id >= 'call_' || lower(hex(s.send_id)) || '_'
                     AND c.call_id < 'call_' || lower(hex(s.send_id)) || '`'
    WHERE s.tenant = $1 AND s.session_id = $2
);
DELETE FROM inbox WHERE tenant = $1 AND session_id = $2;
DELETE FROM messages WHERE tenant = $1 AND session_id = $2;
DELETE FROM agents WHERE tenant = $1 AND session_id = $2;
DELETE FROM sessions WHERE tenant = $1 AND session_id = $2;
