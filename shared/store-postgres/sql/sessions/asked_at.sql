-- The message whose request this one answers.
-- Index: the primary key.
SELECT m.asked_at_seq FROM messages m
WHERE m.tenant = $1::integer AND m.session_id = $2::uuid AND m.seq = $3::bigint
