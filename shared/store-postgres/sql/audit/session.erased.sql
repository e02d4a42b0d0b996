-- A deleted session whose erasure has ended left nothing behind, and has no session below it.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
over AS MATERIALIZED (
    SELECT h.tenant, h.session_id
    FROM session_hot h
    LEFT JOIN erasures e ON e.tenant = h.tenant AND e.session_id = h.session_id
    WHERE h.lifecycle = 2 AND e.session_id IS NULL
)
SELECT json_build_object('session', v.session_id, 'has', v.has, 'rows', count(*))::text AS row
FROM (
    SELECT o.tenant, o.session_id, 'messages' AS has
    FROM over o JOIN messages m ON m.tenant = o.tenant AND m.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'calls'
    FROM over o JOIN tool_calls c ON c.tenant = o.tenant AND c.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'usage'
    FROM over o JOIN usage_rows u ON u.tenant = o.tenant AND u.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'inbox'
    FROM over o JOIN inbox n ON n.tenant = o.tenant AND n.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'agents'
    FROM over o JOIN agents a ON a.tenant = o.tenant AND a.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'folds'
    FROM over o JOIN folds f ON f.tenant = o.tenant AND f.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'projections'
    FROM over o JOIN projections p ON p.tenant = o.tenant AND p.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'children'
    FROM over o JOIN sessions s ON s.tenant = o.tenant AND s.parent_session = o.session_id
) v
GROUP BY v.tenant, v.session_id, v.has
ORDER BY v.tenant, v.session_id, v.has
LIMIT (SELECT b.rows_max FROM bound b)
