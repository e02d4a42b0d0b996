-- Forgets a deleted session of which nothing is left, and below which no session is.
-- Index: erasures_pkey, sessions_children.
DELETE FROM erasures e
WHERE e.tenant = $1::integer AND e.session_id = $2::uuid
  AND NOT EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid
  )
