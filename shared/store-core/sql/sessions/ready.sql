-- Sessions with work and no live owner at $1, oldest first, by session_hot_ready: after ($4, $5,
-- $6), ready since $2 at the latest, or since later than $1 because the clock was set back; of pool
-- $3, if given. Those that wait for a seat are left out until they are called.
SELECT h.tenant, h.session_id, h.pool, h.priority, h.ready_since
FROM session_hot h
WHERE h.ready_since IS NOT NULL
  AND (h.ready_since <= $2 OR h.ready_since > $1)
  AND h.ready_since >= $4 AND (h.ready_since, h.tenant, h.session_id) > ($4, $5, $6)
  AND ($3 IS NULL OR h.pool = $3)
  AND NOT EXISTS (SELECT 1 FROM boots b
                  WHERE b.boot_id = h.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1)
  AND NOT EXISTS (SELECT 1 FROM seats w
                  WHERE w.tenant = h.tenant AND w.session_id = h.session_id
                    AND w.waits_since IS NOT NULL AND w.called_at IS NULL)
ORDER BY h.ready_since, h.tenant, h.session_id
LIMIT $7;
