-- Calls with several results, with one that comes too early, too late or from another send, or
-- with none although their round is over; and results of calls that nobody made.
WITH asked AS MATERIALIZED (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, c.value ->> 'id' AS call_id,
           (SELECT min(n.seq) FROM messages n
            WHERE n.tenant = m.tenant AND n.session_id = m.session_id
              AND n.seq > m.seq AND n.role = 'assistant') AS until
    FROM messages m, json_each(m.tool_calls) c
    WHERE m.tool_calls IS NOT NULL
), answered AS MATERIALIZED (
    SELECT tenant, session_id, send_id, seq, tool_call_id AS call_id
    FROM messages WHERE tool_call_id IS NOT NULL
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'call', call_id, 'seq', seq, 'results', results)
FROM (
    SELECT a.tenant, a.session_id, a.call_id, a.seq, count(r.seq) AS results
    FROM asked a
    LEFT JOIN answered r ON r.tenant = a.tenant AND r.session_id = a.session_id AND r.call_id = a.call_id
    LEFT JOIN sends s ON s.tenant = a.tenant AND s.send_id = a.send_id
    GROUP BY a.tenant, a.session_id, a.call_id, a.seq
    HAVING count(r.seq) > 1
        OR max(coalesce(r.seq <= a.seq OR r.seq > a.until OR r.send_id <> a.send_id, 0))
        OR (count(r.seq) = 0 AND (a.until IS NOT NULL OR max(s.finished_at) IS NOT NULL))
    UNION ALL
    SELECT r.tenant, r.session_id, r.call_id, r.seq, 0
    FROM answered r
    WHERE NOT EXISTS (SELECT 1 FROM asked a
                      WHERE a.tenant = r.tenant AND a.session_id = r.session_id AND a.call_id = r.call_id)
)
ORDER BY tenant, session_id, seq, call_id
LIMIT $1;
