-- Sets the next message number of a session, whose hot row is locked, to which copied messages were
-- added.
-- Index: session_hot_pkey.
UPDATE session_hot SET next_seq = $3::bigint, context_version = context_version + 1
WHERE tenant = $1::integer AND session_id = $2::uuid
