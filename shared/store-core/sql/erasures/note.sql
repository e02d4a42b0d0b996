-- Notes how far a deleted session was removed, and when it is to be looked at again.
UPDATE erasures SET seq = $3, send_id = $4, due_at = coalesce($5, due_at) WHERE tenant = $1 AND session_id = $2;
