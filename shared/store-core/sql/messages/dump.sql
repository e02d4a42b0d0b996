-- Every message, by session.
SELECT tenant, session_id, {message}
FROM messages
ORDER BY tenant, session_id, seq;
