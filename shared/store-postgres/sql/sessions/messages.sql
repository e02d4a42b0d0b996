-- Reads a page of a transcript.
-- Index: messages_pkey.
SELECT
    0::bigint AS ord, {m.message}
FROM messages m
WHERE m.tenant = $1::integer AND m.session_id = $2::uuid AND m.seq > $3::bigint
  -- Rows that a deleted session left behind do not count.
  AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
  )
ORDER BY m.seq
LIMIT $4::bigint
