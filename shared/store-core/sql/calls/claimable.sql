-- Calls of the external tool $2 that nobody has at $3, behind the call $6 requested at $5, the longest waiting first, at
-- most $4. Rows that a deleted session left behind do not count.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND waits_on = 'tool' AND name = $2 AND approval <> 'asked'
  AND requested_at >= $5 AND (requested_at > $5 OR call_id > $6)
  AND (claimed_until IS NULL OR (claimed_until <= $3 AND "repeat" <> 'once'))
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id)
ORDER BY requested_at, call_id
LIMIT $4;
