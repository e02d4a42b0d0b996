-- Reads all folds of a session.
-- Index: folds_pkey.
SELECT f.tenant, f.session_id, {f.fold}
FROM folds f
WHERE f.tenant = $1::integer AND f.session_id = $2::uuid
  -- Rows that a deleted session left behind do not count.
  AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
  )
ORDER BY f.n
