-- A call. What a deleted session left behind is nobody's.
SELECT tenant, session_id, call_id, send_id, round, place, name, arguments, "repeat", waits_on,
       approval, started_epoch, attempt, deadline_at, result, requested_at, settled_at
FROM tool_calls
WHERE tenant = $1 AND call_id = $2
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id);
