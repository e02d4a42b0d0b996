-- Deleted sessions whose erasure has ended but that left something behind, or that have a session
-- below them.
WITH erased AS MATERIALIZED (
    SELECT h.tenant, h.session_id
    FROM session_hot h
    WHERE h.lifecycle = 2
      AND NOT EXISTS (SELECT 1 FROM erasures e
                      WHERE e.tenant = h.tenant AND e.session_id = h.session_id)
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'has', has, 'rows', count(*))
FROM (
    SELECT o.tenant, o.session_id, 'messages' AS has
    FROM erased o JOIN messages x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'tool_calls' AS has
    FROM erased o JOIN tool_calls x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'usage_rows' AS has
    FROM erased o JOIN usage_rows x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'inbox' AS has
    FROM erased o JOIN inbox x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'agents' AS has
    FROM erased o JOIN agents x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'folds' AS has
    FROM erased o JOIN folds x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'projections' AS has
    FROM erased o JOIN projections x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'children'
    FROM erased o JOIN sessions x ON x.tenant = o.tenant AND x.parent_session = o.session_id
) found
GROUP BY tenant, session_id, has
ORDER BY tenant, session_id, has
LIMIT $1;
