-- Whether a session is below this one, by sessions_children.
SELECT EXISTS (SELECT 1 FROM sessions WHERE tenant = $1 AND parent_session = $2);
