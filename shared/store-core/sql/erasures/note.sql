-- Records how far the erasure of a session has got, and when to look at it again.
UPDATE erasures SET seq = $3, send_id = $4, due_at = coalesce($5, due_at) WHERE tenant = $1 AND session_id = $2;
