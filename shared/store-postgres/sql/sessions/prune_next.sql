-- The first message between two others that is not an answer to another message.
-- Index: messages_pkey; it reads at most the answers of one round.
SELECT m.seq FROM messages m
WHERE m.tenant = $1::integer AND m.session_id = $2::uuid
  AND m.seq > $3::bigint AND m.seq < $4::bigint AND m.asked_at_seq IS NULL
ORDER BY m.seq
LIMIT 1
