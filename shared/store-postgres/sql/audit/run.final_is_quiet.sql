-- A final run has no send in flight, no open node, no leaves counted as live and no alarm. A run
-- that could not be advanced left its nodes as they were, and requested a cancel of its sends.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
final AS MATERIALIZED (
    SELECT
        r.tenant, r.run_id, r.status, r.alarm_at, (r.counts::json ->> 'live')::bigint AS live,
        r.error IS NOT NULL AND r.error::json ->> 'code' = 'internal' AS broken
    FROM runs r
    WHERE r.finished_at IS NOT NULL
)
SELECT v.row FROM (
    SELECT
        f.tenant, f.run_id,
        json_build_object('run', f.run_id, 'status', f.status, 'live', count(*))::text AS row
    FROM sends s
    JOIN final f ON f.tenant = s.tenant AND f.run_id = s.run_id
    WHERE s.run_id IS NOT NULL AND s.finished_at IS NULL
      AND NOT (f.broken AND s.cancel_requested)
    GROUP BY f.tenant, f.run_id, f.status
    UNION ALL
    SELECT
        f.tenant, f.run_id,
        json_build_object('run', f.run_id, 'status', f.status, 'nodes', count(*))::text
    FROM run_nodes n
    JOIN final f ON f.tenant = n.tenant AND f.run_id = n.run_id
    WHERE n.state IN ('queued', 'running', 'waiting') AND NOT f.broken
    GROUP BY f.tenant, f.run_id, f.status
    UNION ALL
    SELECT
        f.tenant, f.run_id,
        json_build_object(
            'run', f.run_id, 'status', f.status, 'alarm_at', f.alarm_at, 'live', f.live
        )::text
    FROM final f
    WHERE f.alarm_at IS NOT NULL OR f.live > 0
) v
ORDER BY v.tenant, v.run_id
LIMIT (SELECT b.rows_max FROM bound b)
