-- Every message, by session.
SELECT tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name, failed,
       round, asked_at_seq, epoch, created_at
FROM messages
ORDER BY tenant, session_id, seq;
