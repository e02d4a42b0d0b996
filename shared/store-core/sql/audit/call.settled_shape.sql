-- Calls with a result but no time of it, or the other way round; that wait although they are
-- settled; that were begun without a grant, or have one and were not begun.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'call', call_id)
FROM tool_calls
WHERE (settled_at IS NULL) <> (result IS NULL)
   OR (settled_at IS NOT NULL AND waits_on IS NOT NULL)
   OR (started_epoch IS NULL) <> (attempt = 0)
ORDER BY tenant, session_id, call_id
LIMIT $1;
