-- A message of its send asks for each call. Rows of deleted sessions are not checked: they are
-- removed in no particular order.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
asked AS MATERIALIZED (
    SELECT m.tenant, m.session_id, m.send_id, c.value ->> 'id' AS call_id
    FROM messages m
    CROSS JOIN LATERAL json_array_elements(m.tool_calls::json) AS c (value)
    WHERE m.tool_calls IS NOT NULL
)
SELECT json_build_object('session', c.session_id, 'send', c.send_id, 'call', c.call_id)::text AS row
FROM tool_calls c
JOIN sessions s ON s.tenant = c.tenant AND s.session_id = c.session_id
LEFT JOIN asked a
    ON a.tenant = c.tenant AND a.session_id = c.session_id AND a.send_id = c.send_id
    AND a.call_id = c.call_id
WHERE a.call_id IS NULL
ORDER BY c.tenant, c.session_id, c.call_id
LIMIT (SELECT b.rows_max FROM bound b)
