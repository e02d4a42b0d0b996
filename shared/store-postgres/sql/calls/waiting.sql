-- Reads a page of a tenant's calls that wait for a person or a client, the longest waiting first: those that wait
-- for $2, if given, behind the call $4 requested at $3.
-- Index: tool_calls_waiting, sessions_pkey.
SELECT
    c.session_id, {c.call}
FROM tool_calls c
WHERE c.tenant = $1::integer
  AND c.waits_on IN ('tool', 'human')
  AND (c.requested_at, c.call_id) > ($3::bigint, $4::text)
  AND ($2::text IS NULL OR c.waits_on = $2::text)
  -- Rows that a deleted session left behind do not count.
  AND EXISTS (SELECT FROM sessions s WHERE s.tenant = c.tenant AND s.session_id = c.session_id)
ORDER BY c.requested_at, c.call_id
LIMIT $5::bigint
