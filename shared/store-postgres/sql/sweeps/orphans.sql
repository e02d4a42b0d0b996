-- Reads a page of the sends and runs that work for calls and are not final, by id after $4. For
-- each: the send that made the call, if it ended more than $2 ms ago without completing. A session
-- without a parent is nobody's child, whoever its send reports to.
-- Index: sends_reporting, runs_reporting, sessions_pkey, tool_calls_pkey, sends_pkey.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $2::bigint
            AS before
),
looked AS MATERIALIZED (
    (
        SELECT s.tenant, s.send_id AS id, s.reports_to, s.session_id AS child, NULL::uuid AS parent
        FROM sends s
        WHERE s.reports_to IS NOT NULL AND s.finished_at IS NULL
          AND (s.tenant, s.send_id) > ($3::integer, $4::uuid)
        ORDER BY s.tenant, s.send_id
        LIMIT $5::bigint
    )
    UNION ALL
    (
        SELECT r.tenant, r.run_id AS id, r.reports_to, NULL::uuid AS child, r.session_id AS parent
        FROM runs r
        WHERE r.reports_to IS NOT NULL AND r.finished_at IS NULL
          AND (r.tenant, r.run_id) > ($3::integer, $4::uuid)
        ORDER BY r.tenant, r.run_id
        LIMIT $5::bigint
    )
    ORDER BY tenant, id
    LIMIT $5::bigint
)
SELECT l.tenant, l.id, p.session_id, p.send_id
FROM looked l
CROSS JOIN bound b
LEFT JOIN sessions k ON k.tenant = l.tenant AND k.session_id = l.child
LEFT JOIN tool_calls c
    ON c.tenant = l.tenant AND c.call_id = l.reports_to
    AND c.session_id = coalesce(l.parent, k.parent_session)
LEFT JOIN sends p
    ON p.tenant = c.tenant AND p.send_id = c.send_id
    AND p.finished_at < b.before AND p.status <> 'completed'
ORDER BY l.tenant, l.id
