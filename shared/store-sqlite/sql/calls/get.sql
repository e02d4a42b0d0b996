-- A call.
SELECT tenant, session_id, call_id, send_id, round, place, name, arguments, repeat, waits_on,
       approval, started_epoch, attempt, deadline_at, result, requested_at, settled_at
FROM tool_calls
WHERE tenant = $1 AND call_id = $2;
