-- Sets the next message number of a session to which copied messages were added.
UPDATE session_hot SET next_seq = $3, context_version = context_version + 1
WHERE tenant = $1 AND session_id = $2;
