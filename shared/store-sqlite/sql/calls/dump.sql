-- Every tool call, by session.
SELECT tenant, session_id, call_id, send_id, round, result IS NOT NULL
FROM tool_calls
ORDER BY tenant, session_id, call_id;
