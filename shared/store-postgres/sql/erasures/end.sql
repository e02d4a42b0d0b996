-- Forgets a deleted session once nothing of it is left and no session is below it.
-- Index: erasures_pkey, sessions_children.
DELETE FROM erasures e
WHERE e.tenant = $1::integer AND e.session_id = $2::uuid
  AND NOT EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid
  )
