-- A send's columns match its status.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', s.session_id, 'send', s.send_id, 'status', s.status
)::text AS row
FROM sends s
WHERE NOT (
    CASE
        WHEN s.status = 'queued'
            THEN s.started_at IS NULL AND (s.position IS NOT NULL OR s.alarm_at IS NOT NULL)
        WHEN s.status IN ('running', 'waiting', 'completed')
            THEN s.started_at IS NOT NULL AND s.agent_version IS NOT NULL
                AND s.position IS NOT NULL
        ELSE s.status IN ('failed', 'cancelled')
    END
    AND (s.finished_at IS NOT NULL) = (s.status IN ('completed', 'failed', 'cancelled'))
    AND (s.stop_reason IS NOT NULL) = (s.finished_at IS NOT NULL)
    AND (s.waiting_on IS NOT NULL) = (s.status = 'waiting')
    AND (s.error IS NOT NULL) = (s.status = 'failed')
    AND (s.finished_at IS NULL OR s.alarm_at IS NULL)
)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT (SELECT b.rows_max FROM bound b)
