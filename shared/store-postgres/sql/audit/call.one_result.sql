-- A tool call has exactly one result, after it, in the same send, before the next round. While its
-- round is the last one of an open send, the result may still come.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
asking AS MATERIALIZED (
    SELECT
        m.tenant, m.session_id, m.send_id, m.seq, m.tool_calls,
        lead(m.seq) OVER (PARTITION BY m.tenant, m.session_id ORDER BY m.seq) AS next_round
    FROM messages m WHERE m.role = 'assistant'
),
call AS MATERIALIZED (
    SELECT
        a.tenant, a.session_id, a.send_id, a.seq, a.next_round, c.value ->> 'id' AS call_id,
        a.next_round IS NOT NULL OR s.finished_at IS NOT NULL AS over
    FROM asking a
    CROSS JOIN LATERAL json_array_elements(a.tool_calls::json) AS c (value)
    LEFT JOIN sends s ON s.tenant = a.tenant AND s.send_id = a.send_id
    WHERE a.tool_calls IS NOT NULL
),
answer AS MATERIALIZED (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, m.tool_call_id
    FROM messages m WHERE m.tool_call_id IS NOT NULL
)
SELECT v.row FROM (
    SELECT
        c.tenant, c.session_id, c.seq,
        json_build_object(
            'session', c.session_id, 'call', c.call_id, 'seq', c.seq, 'results', count(a.seq)
        )::text AS row
    FROM call c
    LEFT JOIN answer a
        ON a.tenant = c.tenant AND a.session_id = c.session_id AND a.tool_call_id = c.call_id
    GROUP BY c.tenant, c.session_id, c.seq, c.call_id, c.over
    HAVING count(a.seq) > 1
        OR (c.over AND count(a.seq) = 0)
        OR bool_or(
            a.seq < c.seq OR a.seq > c.next_round OR a.send_id <> c.send_id
        )
    UNION ALL
    SELECT
        a.tenant, a.session_id, a.seq,
        json_build_object(
            'session', a.session_id, 'call', a.tool_call_id, 'seq', a.seq, 'results', 1
        )::text
    FROM answer a
    LEFT JOIN call c
        ON c.tenant = a.tenant AND c.session_id = a.session_id AND c.call_id = a.tool_call_id
    WHERE c.call_id IS NULL
) v
ORDER BY v.tenant, v.session_id, v.seq
LIMIT (SELECT b.rows_max FROM bound b)
