-- Finds calls whose claim has lapsed at $1 and that nobody else may make, the longest lapsed first.
-- Index: tool_calls_lapsing, sessions_pkey.
SELECT c.tenant, c.session_id, c.call_id
FROM tool_calls c
WHERE c.waits_on = 'tool'
  AND c.claimed_until
      <= coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
  AND c.repeat = 'once'
  -- Rows that a deleted session left behind do not count.
  AND EXISTS (SELECT FROM sessions s WHERE s.tenant = c.tenant AND s.session_id = c.session_id)
ORDER BY c.claimed_until, c.tenant, c.session_id, c.call_id
LIMIT $2::bigint
