-- Gives back what nobody used of what a session had set aside.
-- Index: the primary key.
UPDATE session_hot SET spent = $3::text WHERE tenant = $1::integer AND session_id = $2::uuid
