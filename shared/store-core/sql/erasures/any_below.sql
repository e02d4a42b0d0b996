-- Whether this session has a session below it, by sessions_children.
SELECT EXISTS (SELECT 1 FROM sessions WHERE tenant = $1 AND parent_session = $2);
