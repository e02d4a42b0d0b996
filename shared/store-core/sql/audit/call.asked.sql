-- Calls that no message of their send asks for. The cast lets the join use an automatic index.
WITH asked AS MATERIALIZED (
    SELECT m.tenant, m.session_id, m.send_id, CAST(c.value ->> 'id' AS TEXT) AS call_id
    FROM messages m, json_each(m.tool_calls) c
    WHERE m.tool_calls IS NOT NULL
)
SELECT json_object('session', 'ses_' || lower(hex(t.session_id)), 'call', t.call_id)
FROM tool_calls t
JOIN sessions s ON s.tenant = t.tenant AND s.session_id = t.session_id
LEFT JOIN asked a ON a.call_id = t.call_id AND a.tenant = t.tenant
                 AND a.session_id = t.session_id AND a.send_id = t.send_id
WHERE a.call_id IS NULL
ORDER BY t.tenant, t.session_id, t.call_id
LIMIT $1;
