-- The session with the name $2.
SELECT session_id FROM session_names WHERE tenant = $1 AND name = $2;
