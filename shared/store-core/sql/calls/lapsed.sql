-- Calls whose claim has lapsed at $1 and that nobody else may make, the longest lapsed first, at most $2. Rows that a
-- deleted session left behind do not count.
SELECT tenant, session_id, call_id
FROM tool_calls
WHERE waits_on = 'tool' AND claimed_until <= $1 AND "repeat" = 'once'
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = tool_calls.tenant AND s.session_id = tool_calls.session_id)
ORDER BY claimed_until, tenant, session_id, call_id
LIMIT $2;
