-- The message whose request this one answers.
SELECT asked_at_seq FROM messages WHERE tenant = $1 AND session_id = $2 AND seq = $3;
