-- The sessions that one created as its children, oldest first as their ids say, by
-- sessions_children.
SELECT tenant, session_id
FROM sessions
WHERE tenant = $1 AND parent_session = $2
ORDER BY session_id;
