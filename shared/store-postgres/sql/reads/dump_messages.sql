-- Reads every message in order.
SELECT
    m.tenant, m.session_id, m.seq, m.send_id, m.role, m.content, m.tool_calls, m.tool_call_id,
    m.name, m.failed, m.round, m.asked_at_seq, m.epoch, m.created_at
FROM messages m
ORDER BY m.tenant, m.session_id, m.seq
