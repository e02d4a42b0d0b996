-- A final send that a parent waits for is reported within a minute, unless the parent is gone, and
-- with it the call that made the child.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', s.session_id, 'send', s.send_id, 'parent', c.session_id, 'call', s.reports_to
)::text AS row
FROM sends s
JOIN tool_calls c ON c.tenant = s.tenant AND c.call_id = s.reports_to
JOIN sessions p ON p.tenant = c.tenant AND p.session_id = c.session_id
CROSS JOIN bound b
WHERE s.finished_at IS NOT NULL AND s.reported_at IS NULL AND s.finished_at + 60000 < b.now
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT (SELECT b.rows_max FROM bound b)
