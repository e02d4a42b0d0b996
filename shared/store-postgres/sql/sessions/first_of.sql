-- The first message of a send from $3 on.
-- Index: messages_pkey.
SELECT min(m.seq) AS seq FROM messages m
WHERE m.tenant = $1::integer AND m.session_id = $2::uuid AND m.seq >= $3::bigint
  AND m.send_id = $4::uuid
