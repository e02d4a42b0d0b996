-- The first of a tenant's line that have work still, of leaves or of others. $4 leaves out those that were
-- called so many milliseconds ago: others may pass them.
-- Index: seats_line, session_hot_pkey.
SELECT w.session_id, w.leaf, w.waits_since, w.called_at, h.pool, h.priority, h.ready_since
FROM seats w
JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
WHERE w.tenant = $2::integer AND w.leaf = $3::boolean AND w.waits_since IS NOT NULL
  AND (
      w.called_at IS NULL
      OR w.called_at > coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $4::bigint
  )
  AND h.ready_since IS NOT NULL AND h.lifecycle <> 2 AND h.active <> 1
ORDER BY w.waits_since, w.session_id
LIMIT $5::bigint
