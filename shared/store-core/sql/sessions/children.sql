-- The children of a session, oldest first by their ids, by sessions_children.
SELECT tenant, session_id
FROM sessions
WHERE tenant = $1 AND parent_session = $2
ORDER BY session_id;
