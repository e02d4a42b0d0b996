-- Counts, per pool, the sessions that are ready and those that a live boot holds. Sessions that
-- wait for a seat do not count as ready: more workers would not help them.
-- Index: session_hot_ready, seats_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
live AS MATERIALIZED (
    SELECT b.boot_id FROM boots b CROSS JOIN clock c
    WHERE b.dead_at IS NULL AND b.lease_until >= c.now
),
work AS (
    SELECT
        h.pool, h.ready_since,
        coalesce(h.owner_boot = ANY (ARRAY(SELECT l.boot_id FROM live l)), FALSE) AS held
    FROM session_hot h
    WHERE h.ready_since IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM seats w
          WHERE w.tenant = h.tenant AND w.session_id = h.session_id
            AND w.waits_since IS NOT NULL AND w.called_at IS NULL
      )
)
SELECT
    w.pool, count(*) FILTER (WHERE NOT w.held) AS ready, count(*) FILTER (WHERE w.held) AS running,
    coalesce(max(greatest(c.now - w.ready_since, 0)) FILTER (WHERE NOT w.held), 0) AS oldest_ready_ms
FROM work w CROSS JOIN clock c
WHERE $2::text IS NULL OR w.pool = $2::text
GROUP BY w.pool
ORDER BY w.pool
