-- The first of the line of the tenant $1 that have work still, leaves or others by $2, but for those that were
-- called before $3: others may pass them. By seats_line.
SELECT w.session_id, w.waits_since, w.called_at, h.tenant, h.pool, h.priority, h.ready_since
FROM seats w
JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
WHERE w.tenant = $1 AND w.leaf = $2 AND w.waits_since IS NOT NULL
  AND (w.called_at IS NULL OR w.called_at > $3)
  AND h.ready_since IS NOT NULL AND h.lifecycle <> 2
ORDER BY w.waits_since, w.session_id
LIMIT $4;
