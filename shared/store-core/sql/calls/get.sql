-- A call, by id. Rows that a deleted session left behind do not count.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND call_id = $2
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id);
