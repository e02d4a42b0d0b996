-- Gives back what nobody used of what a session had set aside.
UPDATE session_hot SET spent = $3 WHERE tenant = $1 AND session_id = $2;
