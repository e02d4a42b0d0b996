-- What MySQL says differently about sends.

-- name: sends/list_not_completed
-- Sends that ended otherwise than well, newest first, by sends_not_completed.
SELECT {send}
FROM sends
WHERE tenant = $1 AND not_end = 1 AND ($2 IS NULL OR send_id < $2) AND status = $3
ORDER BY send_id DESC
LIMIT $4;

-- name: sends/orphans
-- Sends and runs under way that work for a call whose send ended otherwise than well before $1,
-- behind ($2, $3), at most $4 looked at; by sends_reporting and runs_reporting.
WITH looked AS (
    SELECT * FROM (
        SELECT tenant, send_id AS id, reports_to, session_id AS child, NULL AS parent
        FROM sends
        WHERE reporting = 1 AND tenant >= $2 AND (tenant, send_id) > ($2, $3)
        ORDER BY tenant, send_id
        LIMIT $4
    ) AS s
    UNION ALL
    SELECT * FROM (
        SELECT tenant, run_id AS id, reports_to, NULL AS child, session_id AS parent
        FROM runs
        WHERE reporting = 1 AND tenant >= $2 AND (tenant, run_id) > ($2, $3)
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

-- name: sends/unreported
-- Final sends that were not reported, oldest first, by sends_unreported.
SELECT {send}
FROM sends
WHERE unreported_at IS NOT NULL
ORDER BY unreported_at, send_id
LIMIT $1 OFFSET $2;
