-- What MySQL says differently about the queue's numbers.

-- name: stats/queue
-- Sessions with work per pool: waiting, held, and how long the first of those that wait has waited.
SELECT pool, CAST(sum(NOT held) AS SIGNED) AS ready,
       CAST(sum(held) AS SIGNED) AS running,
       CAST(coalesce(max(CASE WHEN NOT held THEN GREATEST($1 - ready_since, 0) END), 0) AS SIGNED)
           AS oldest_ready_ms
FROM (
    SELECT h.pool, h.ready_since,
           EXISTS (SELECT 1 FROM boots b
                   WHERE b.boot_id = h.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1) AS held
    FROM session_hot h
    WHERE h.ready_since IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM seats w
                      WHERE w.tenant = h.tenant AND w.session_id = h.session_id
                        AND w.waits_since IS NOT NULL AND w.called_at IS NULL)
) working
GROUP BY pool
ORDER BY pool;
