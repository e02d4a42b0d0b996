-- Sets the next message number of a session that was created with copied messages.
UPDATE session_hot SET next_seq = $3 WHERE tenant = $1 AND session_id = $2;
