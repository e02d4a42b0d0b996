-- Returns the unused part of what a session reserved.
-- Index: the primary key.
UPDATE session_hot SET spent = $3::text WHERE tenant = $1::integer AND session_id = $2::uuid
