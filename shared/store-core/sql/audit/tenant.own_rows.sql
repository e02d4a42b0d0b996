-- Sessions, sends and runs that rows of one tenant name but only another tenant has.
WITH named AS MATERIALIZED (
    SELECT tenant, 'session' AS what, session_id AS id FROM sends
    UNION SELECT tenant, 'session', session_id FROM messages
    UNION SELECT tenant, 'session', session_id FROM steps
    UNION SELECT tenant, 'session', session_id FROM tool_calls
    UNION SELECT tenant, 'session', session_id FROM inbox
    UNION SELECT tenant, 'session', session_id FROM agents
    UNION SELECT tenant, 'session', session_id FROM usage_rows
    UNION SELECT tenant, 'session', session_id FROM folds
    UNION SELECT tenant, 'session', session_id FROM projections
    UNION SELECT tenant, 'session', session_id FROM extractions
    UNION SELECT tenant, 'session', unhex(substr(source ->> 'session_id', 5)) FROM memories
    UNION SELECT tenant, 'session', parent_session FROM sessions
    UNION SELECT tenant, 'session', root_session FROM sessions
    UNION SELECT tenant, 'session', session_id FROM runs
    UNION SELECT tenant, 'session', session_id FROM timers
    UNION SELECT tenant, 'send', send_id FROM messages WHERE epoch > 0
    UNION SELECT tenant, 'send', send_id FROM steps
    UNION SELECT tenant, 'send', send_id FROM tool_calls
    UNION SELECT tenant, 'send', send_id FROM inbox
    UNION SELECT tenant, 'send', send_id FROM usage_rows
    UNION SELECT tenant, 'send', send_id FROM extractions
    UNION SELECT tenant, 'send', unhex(substr(source ->> 'send_id', 5)) FROM memories
    UNION SELECT tenant, 'run', run_id FROM sends
), has AS MATERIALIZED (
    SELECT tenant, 'session' AS what, session_id AS id FROM session_hot
    UNION ALL SELECT tenant, 'send', send_id FROM sends
    UNION ALL SELECT tenant, 'run', run_id FROM runs
), missing AS MATERIALIZED (
    SELECT n.tenant, n.what, n.id
    FROM named n
    LEFT JOIN has h ON h.id = n.id AND h.what = n.what AND h.tenant = n.tenant
    WHERE h.id IS NULL AND n.id IS NOT NULL
)
SELECT json_object('tenant', m.tenant, m.what, lower(hex(m.id)), 'of', min(o.tenant))
FROM missing m
JOIN has o ON o.id = m.id AND o.what = m.what
GROUP BY m.tenant, m.what, m.id
ORDER BY m.tenant, m.what, m.id
LIMIT $1;
