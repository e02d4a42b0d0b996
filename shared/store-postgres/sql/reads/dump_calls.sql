-- Reads every tool call in order.
SELECT c.tenant, c.session_id, c.call_id, c.send_id, c.round, c.settled_at IS NOT NULL AS settled
FROM tool_calls c
ORDER BY c.tenant, c.session_id, c.call_id
