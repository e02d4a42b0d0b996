-- Reads a page of a session's inbox.
-- Index: inbox_pkey.
SELECT
    {n.item}
FROM inbox n
WHERE n.tenant = $1::integer AND n.session_id = $2::uuid AND n.n > $3::bigint
  -- Rows that a deleted session left behind do not count.
  AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
  )
ORDER BY n.n
LIMIT $4::bigint
