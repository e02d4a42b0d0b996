-- Messages of a transcript between $3 and $4, newest first, at most $7; if given, only those of the
-- send $5 or with the result of the call $6.
SELECT tenant, session_id, {message}
FROM messages
WHERE tenant = $1 AND session_id = $2 AND seq > $3 AND seq < $4 AND ($5 IS NULL OR send_id = $5)
  AND ($6 IS NULL OR tool_call_id = $6)
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY seq DESC
LIMIT $7;
