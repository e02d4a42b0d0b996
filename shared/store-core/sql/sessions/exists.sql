-- Whether a session has a hot row, even if it is locked.
SELECT EXISTS (SELECT 1 FROM session_hot WHERE tenant = $1 AND session_id = $2);
