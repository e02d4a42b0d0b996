-- Final runs with a send in flight, an open node, leaves counted as live, or an alarm. A run that
-- could not be advanced left its nodes as they were, and requested a cancel of its sends.
WITH final AS MATERIALIZED (
    SELECT tenant, run_id, status, alarm_at, counts ->> 'live' AS live,
           coalesce(error ->> 'code' = 'internal', 0) AS broken
    FROM runs
    WHERE finished_at IS NOT NULL
)
SELECT violation FROM (
    SELECT f.tenant, f.run_id,
           json_object('run', 'run_' || lower(hex(f.run_id)), 'status', f.status,
                       'live', count(*)) AS violation
    FROM sends s
    JOIN final f ON f.run_id = s.run_id AND f.tenant = s.tenant
    WHERE s.run_id IS NOT NULL AND s.finished_at IS NULL
      AND NOT (f.broken AND s.cancel_requested)
    GROUP BY f.tenant, f.run_id, f.status
    UNION ALL
    SELECT f.tenant, f.run_id,
           json_object('run', 'run_' || lower(hex(f.run_id)), 'status', f.status,
                       'nodes', count(*))
    FROM run_nodes n
    JOIN final f ON f.run_id = n.run_id AND f.tenant = n.tenant
    WHERE n.state IN ('queued', 'running', 'waiting') AND NOT f.broken
    GROUP BY f.tenant, f.run_id, f.status
    UNION ALL
    SELECT tenant, run_id,
           json_object('run', 'run_' || lower(hex(run_id)), 'status', status,
                       'alarm_at', alarm_at, 'live', live)
    FROM final
    WHERE alarm_at IS NOT NULL OR live > 0
) found
ORDER BY tenant, run_id
LIMIT $1;
