-- Returns the unused part of what a session reserved.
UPDATE session_hot SET spent = $3 WHERE tenant = $1 AND session_id = $2;
