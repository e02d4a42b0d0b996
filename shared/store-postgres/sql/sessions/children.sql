-- Reads the children of a session, oldest first.
-- Index: sessions_children.
SELECT s.tenant, s.session_id
FROM sessions s
WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid
ORDER BY s.session_id
