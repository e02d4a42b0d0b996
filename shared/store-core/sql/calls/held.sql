-- Calls that were claimed with the token $2, the longest waiting first, at most $3. Rows that a deleted session left
-- behind do not count.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND waits_on = 'tool' AND claim = $2
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id)
ORDER BY requested_at, call_id
LIMIT $3;
