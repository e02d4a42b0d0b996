-- Reads every tool call in order.
SELECT
    c.tenant, c.session_id, c.call_id, c.session_id, c.send_id, c.round, c.place, c.name,
    c.arguments, c.repeat, c.waits_on, c.approval, c.started_epoch, c.attempt, c.deadline_at,
    c.result, c.requested_at, c.settled_at
FROM tool_calls c
ORDER BY c.tenant, c.session_id, c.call_id
