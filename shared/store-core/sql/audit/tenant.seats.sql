-- Sessions that wait for a seat although their tenant has no such limit, or although they run; and
-- sends that run without a seat, except those that may have started before there was a limit.
SELECT json_object('session', 'ses_' || lower(hex(x.session_id)), 'why', x.why)
FROM (
    SELECT w.tenant, w.session_id, 'waits without a limit' AS why
    FROM seats w
    WHERE w.waits_since IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM seat_limits l WHERE l.tenant = w.tenant)
    UNION ALL
    SELECT w.tenant, w.session_id, 'waits and runs' AS why
    FROM seats w
    JOIN sends s ON s.tenant = w.tenant AND s.session_id = w.session_id
                AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
    WHERE w.waits_since IS NOT NULL
    UNION ALL
    SELECT s.tenant, s.session_id, 'runs without a seat' AS why
    FROM seat_limits l
    JOIN sends s ON s.tenant = l.tenant
                AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
    WHERE s.started_at > l.set_at + 5000
      AND NOT EXISTS (SELECT 1 FROM seats t
                      WHERE t.tenant = s.tenant AND t.session_id = s.session_id)
) x
ORDER BY x.tenant, x.session_id
LIMIT $1;
