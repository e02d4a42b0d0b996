-- Reads every tool call in order.
SELECT
    c.tenant, c.session_id, {c.call}
FROM tool_calls c
ORDER BY c.tenant, c.session_id, c.call_id
