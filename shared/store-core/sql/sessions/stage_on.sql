-- Goes on with a session whose messages come page by page, unless its time was up.
UPDATE erasures SET due_at = $3
WHERE tenant = $1 AND session_id = $2 AND seq = 0 AND due_at > $4;
