-- Reads calls that were claimed with the token $2, the longest waiting first.
-- Index: tool_calls_held, sessions_pkey. Materialized: otherwise a plan made of an empty table reads all waiting calls of the
-- tenant, which an index has in this order.
WITH held AS MATERIALIZED (
    SELECT
        c.session_id, {c.call}
    FROM tool_calls c
    WHERE c.tenant = $1::integer AND c.claim = $2::uuid AND c.waits_on = 'tool'
)
SELECT
    h.session_id, {h.call}
FROM held h
-- Rows that a deleted session left behind do not count.
WHERE EXISTS (SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = h.session_id)
ORDER BY h.requested_at, h.call_id
LIMIT $3::bigint
