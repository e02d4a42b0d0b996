-- Messages of a transcript between $3 and $4, newest first; if given, only those of the send $5 or
-- with the result of the call $6.
-- Index: messages_pkey.
SELECT
    0::bigint AS ord, {m.message}
FROM messages m
WHERE m.tenant = $1::integer AND m.session_id = $2::uuid
  AND m.seq > $3::bigint AND m.seq < $4::bigint
  AND ($5::uuid IS NULL OR m.send_id = $5::uuid)
  AND ($6::text IS NULL OR m.tool_call_id = $6::text)
  -- Rows that a deleted session left behind do not count.
  AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
  )
ORDER BY m.seq DESC
LIMIT $7::bigint
