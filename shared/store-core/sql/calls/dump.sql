-- Every tool call, by session.
SELECT tenant, session_id, {call}
FROM tool_calls
ORDER BY tenant, session_id, call_id;
