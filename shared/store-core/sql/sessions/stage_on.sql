-- Extends the deadline of a session whose messages arrive page by page, unless it has passed.
UPDATE erasures SET due_at = $3
WHERE tenant = $1 AND session_id = $2 AND seq = 0 AND due_at > $4;
