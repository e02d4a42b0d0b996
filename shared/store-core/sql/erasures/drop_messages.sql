-- Removes the messages after $3 up to $4.
DELETE FROM messages WHERE tenant = $1 AND session_id = $2 AND seq > $3 AND seq <= $4;
