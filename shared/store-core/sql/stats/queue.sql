-- Per pool: the number of sessions with work, split by whether a live boot holds them at $1, and
-- how long the oldest free one has waited. By session_hot_ready: held sessions have work, too.
-- Sessions that wait for a seat do not count as ready: more workers would not help them.
WITH working AS (
    SELECT h.pool, h.ready_since,
           EXISTS (SELECT 1 FROM boots b
                   WHERE b.boot_id = h.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1) AS held
    FROM session_hot h
    WHERE h.ready_since IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM seats w
                      WHERE w.tenant = h.tenant AND w.session_id = h.session_id
                        AND w.waits_since IS NOT NULL AND w.called_at IS NULL)
)
SELECT pool,
       CAST(sum(NOT held) AS INTEGER) AS ready,
       CAST(sum(held) AS INTEGER) AS running,
       CAST(coalesce(max(CASE WHEN NOT held THEN {greatest}($1 - ready_since, 0) END), 0) AS INTEGER)
           AS oldest_ready_ms
FROM working
GROUP BY pool
ORDER BY pool;
