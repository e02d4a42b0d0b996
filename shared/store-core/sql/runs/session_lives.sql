-- Whether a session exists.
SELECT EXISTS (SELECT 1 FROM sessions WHERE tenant = $1 AND session_id = $2);
