-- A page of a tenant's calls that wait for a person or a client, the longest waiting first, at most $5: those that
-- wait for $2, if given, behind the call $4 requested at $3. Rows that a deleted session left behind do not count.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND waits_on IN ('tool', 'human') AND requested_at >= $3
  AND (requested_at > $3 OR call_id > $4)
  AND ($2 IS NULL OR waits_on = $2)
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id)
ORDER BY requested_at, call_id
LIMIT $5;
