-- Counts the messages of a session that was just created.
UPDATE session_hot SET next_seq = $3 WHERE tenant = $1 AND session_id = $2;
