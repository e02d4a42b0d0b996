-- Sessions that wait for a seat although their tenant has no such limit, or although they run; and
-- sends that run without a seat, except those that may have started before there was a limit.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('session', x.session_id, 'why', x.why)::text AS row
FROM (
    SELECT w.tenant, w.session_id, 'waits without a limit' AS why
    FROM seats w
    WHERE w.waits_since IS NOT NULL
      AND NOT EXISTS (SELECT FROM seat_limits l WHERE l.tenant = w.tenant)
    UNION ALL
    SELECT w.tenant, w.session_id, 'waits and runs' AS why
    FROM seats w
    JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id AND h.active = 1
    WHERE w.waits_since IS NOT NULL
    UNION ALL
    SELECT s.tenant, s.session_id, 'runs without a seat' AS why
    FROM seat_limits l
    JOIN sends s ON s.tenant = l.tenant
        AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
    WHERE s.started_at > l.set_at + 5000
      AND NOT EXISTS (
          SELECT FROM seats t WHERE t.tenant = s.tenant AND t.session_id = s.session_id
      )
) x
ORDER BY x.tenant, x.session_id
LIMIT (SELECT b.rows_max FROM bound b)
