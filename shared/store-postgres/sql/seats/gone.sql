-- Removes sessions at the head of a tenant's line that have no work any more.
-- Index: seats_line, session_hot_pkey, seats_pkey.
DELETE FROM seats w
WHERE w.tenant = $1::integer
  AND w.session_id IN (
      SELECT f.session_id FROM seats f
      WHERE f.tenant = $1::integer AND f.waits_since IS NOT NULL
      ORDER BY f.leaf, f.waits_since, f.session_id
      LIMIT $2::bigint
  )
  AND w.waits_since IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM session_hot h
      WHERE h.tenant = w.tenant AND h.session_id = w.session_id
        AND h.ready_since IS NOT NULL AND h.lifecycle <> 2
  )
