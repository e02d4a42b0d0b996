-- Whether a session has not been deleted. Index: the primary key.
SELECT session_id FROM sessions WHERE tenant = $1 AND session_id = $2;
