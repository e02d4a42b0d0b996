-- A message with tool calls is followed directly by one message per call, in order and in the same
-- send, and each of these calls is settled; nothing else answers a call. The last message of the
-- active send may have open calls. Copied messages, of epoch 0, come without the rows of their
-- calls. Rows of deleted sessions are not checked: they are removed in no particular order.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
asking AS MATERIALIZED (
    SELECT
        m.tenant, m.session_id, m.send_id, m.seq, m.tool_calls,
        m.epoch > 0 AND s.send_id IS NOT NULL AS has_rows,
        m.seq = h.next_seq - 1 AND s.status IN ('running', 'waiting') AS may_be_open
    FROM messages m
    JOIN session_hot h ON h.tenant = m.tenant AND h.session_id = m.session_id
    LEFT JOIN sends s
        ON s.tenant = m.tenant AND s.send_id = m.send_id AND s.session_id = m.session_id
    WHERE m.tool_calls IS NOT NULL AND h.lifecycle <> 2
),
call AS MATERIALIZED (
    SELECT
        a.tenant, a.session_id, a.send_id, a.seq, a.has_rows, a.may_be_open, a.seq + c.place AS due,
        c.value ->> 'id' AS call_id
    FROM asking a
    CROSS JOIN LATERAL json_array_elements(a.tool_calls::json) WITH ORDINALITY AS c (value, place)
),
answer AS MATERIALIZED (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, m.tool_call_id
    FROM messages m
    JOIN session_hot h ON h.tenant = m.tenant AND h.session_id = m.session_id
    WHERE (m.tool_call_id IS NOT NULL OR m.role = 'tool') AND h.lifecycle <> 2
)
SELECT v.row FROM (
    SELECT
        c.tenant, c.session_id, c.seq,
        json_build_object(
            'session', c.session_id, 'call', c.call_id, 'seq', c.seq, 'answered_at', a.seq,
            'settled', t.settled_at IS NOT NULL
        )::text AS row
    FROM call c
    LEFT JOIN answer a
        ON a.tenant = c.tenant AND a.session_id = c.session_id AND a.seq = c.due
        AND a.tool_call_id = c.call_id AND a.send_id = c.send_id
    LEFT JOIN tool_calls t ON t.tenant = c.tenant AND t.call_id = c.call_id
    WHERE c.may_be_open IS NOT TRUE
      AND (a.seq IS NULL OR (c.has_rows AND t.settled_at IS NULL))
    UNION ALL
    SELECT
        a.tenant, a.session_id, a.seq,
        json_build_object(
            'session', a.session_id, 'call', a.tool_call_id, 'seq', a.seq
        )::text
    FROM answer a
    LEFT JOIN call c
        ON c.tenant = a.tenant AND c.session_id = a.session_id AND c.due = a.seq
        AND c.call_id = a.tool_call_id
    WHERE c.call_id IS NULL
) v
ORDER BY v.tenant, v.session_id, v.seq
LIMIT (SELECT b.rows_max FROM bound b)
