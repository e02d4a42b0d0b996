-- The first sessions in the line of the tenant $1 that still have work, for the agent $2, leaves or
-- others by $3, except those that were called before $4: others may pass them. By seats_agents.
SELECT w.session_id, w.waits_since, w.called_at, h.tenant, h.pool, h.priority, h.ready_since
FROM seats w
JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
WHERE w.tenant = $1 AND w.agent = $2 AND w.leaf = $3 AND w.waits_since IS NOT NULL
  AND (w.called_at IS NULL OR w.called_at > $4)
  AND h.ready_since IS NOT NULL AND h.lifecycle <> 2
ORDER BY w.waits_since, w.session_id
LIMIT $5;
