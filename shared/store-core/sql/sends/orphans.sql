-- Reads a page of the sends and runs that work for calls and are not final, after ($2, $3), at most
-- $4. For each: the send that made the call, if it ended before $1 without completing. A session
-- without a parent is nobody's child, whoever its send reports to. By sends_reporting and
-- runs_reporting.
WITH looked AS (
    SELECT * FROM (
        SELECT tenant, send_id AS id, reports_to, session_id AS child, NULL AS parent
        FROM sends
        WHERE {reporting} AND (tenant, send_id) > ($2, $3)
        ORDER BY tenant, send_id
        LIMIT $4
    ) AS s
    UNION ALL
    SELECT * FROM (
        SELECT tenant, run_id AS id, reports_to, NULL AS child, session_id AS parent
        FROM runs
        WHERE {reporting} AND (tenant, run_id) > ($2, $3)
        ORDER BY tenant, run_id
        LIMIT $4
    ) AS r
    ORDER BY 1, 2
    LIMIT $4
)
SELECT l.tenant, l.id, p.session_id, p.send_id
FROM looked l
LEFT JOIN sessions k ON k.tenant = l.tenant AND k.session_id = l.child
LEFT JOIN tool_calls c
    ON c.tenant = l.tenant AND c.call_id = l.reports_to
    AND c.session_id = coalesce(l.parent, k.parent_session)
LEFT JOIN sends p
    ON p.tenant = c.tenant AND p.send_id = c.send_id
    AND p.finished_at < $1 AND p.status <> 'completed'
ORDER BY l.tenant, l.id;
