-- Every tool call, by session.
SELECT tenant, session_id, call_id, send_id, round, place, name, arguments, "repeat", waits_on,
       approval, started_epoch, attempt, deadline_at, result, requested_at, settled_at
FROM tool_calls
ORDER BY tenant, session_id, call_id;
