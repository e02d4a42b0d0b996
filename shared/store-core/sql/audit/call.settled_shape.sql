-- Calls with a result but no time of settling, or the reverse; settled calls that still wait for
-- someone; calls that were started without a grant, or that have one but were not started.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'call', call_id)
FROM tool_calls
WHERE (settled_at IS NULL) <> (result IS NULL)
   OR (settled_at IS NOT NULL AND waits_on IS NOT NULL)
   OR (started_epoch IS NULL) <> (attempt = 0)
ORDER BY tenant, session_id, call_id
LIMIT $1;
