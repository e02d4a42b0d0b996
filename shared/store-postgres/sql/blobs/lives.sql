-- Whether a session has not been deleted. Index: the primary key.
SELECT s.session_id FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
