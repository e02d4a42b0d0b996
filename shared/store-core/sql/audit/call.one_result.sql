-- Messages with tool calls that are not followed directly by one message per call, in order and in
-- the same send, or whose calls are not settled; and answers to calls that nobody made. The last
-- message of a send that runs or waits may have open calls. Copied messages, of epoch 0, have no
-- calls of their own, and the calls of old sends were removed with them.
-- Rows of deleted sessions are not checked: they are removed in no particular order.
WITH asked AS MATERIALIZED (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, m.epoch, CAST(c.value ->> 'id' AS TEXT) AS call_id,
           CAST(m.seq + 1 + c.key AS INTEGER) AS due,
           EXISTS (SELECT 1 FROM sends s
                   WHERE s.tenant = m.tenant AND s.send_id = m.send_id
                     AND s.session_id = m.session_id AND s.status IN ('running', 'waiting'))
           AND NOT EXISTS (SELECT 1 FROM messages n
                           WHERE n.tenant = m.tenant AND n.session_id = m.session_id
                             AND n.seq > m.seq) AS may_be_open,
           EXISTS (SELECT 1 FROM sends s
                   WHERE s.tenant = m.tenant AND s.send_id = m.send_id) AS kept
    FROM messages m, json_each(m.tool_calls) c
    WHERE m.tool_calls IS NOT NULL
      AND EXISTS (SELECT 1 FROM sessions c
                  WHERE c.tenant = m.tenant AND c.session_id = m.session_id)
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'call', call_id, 'seq', seq)
FROM (
    SELECT a.tenant, a.session_id, a.seq, a.call_id
    FROM asked a
    LEFT JOIN messages r ON r.tenant = a.tenant AND r.session_id = a.session_id AND r.seq = a.due
    LEFT JOIN tool_calls t ON t.tenant = a.tenant AND t.call_id = a.call_id
                          AND t.session_id = a.session_id
    WHERE NOT a.may_be_open
      AND (r.tool_call_id IS NOT a.call_id OR r.send_id IS NOT a.send_id
           OR CASE WHEN t.call_id IS NULL THEN a.epoch > 0 AND a.kept ELSE t.result IS NULL END)
    UNION ALL
    SELECT r.tenant, r.session_id, r.seq, r.tool_call_id
    FROM messages r
    WHERE r.tool_call_id IS NOT NULL
      AND EXISTS (SELECT 1 FROM sessions c
                  WHERE c.tenant = r.tenant AND c.session_id = r.session_id)
      AND NOT EXISTS (SELECT 1 FROM asked a
                      WHERE a.tenant = r.tenant AND a.session_id = r.session_id
                        AND a.due = r.seq AND a.call_id = r.tool_call_id)
)
ORDER BY tenant, session_id, seq, call_id
LIMIT $1;
