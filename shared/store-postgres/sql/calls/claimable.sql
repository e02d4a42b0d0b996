-- Reads calls of external tools with the names $3 that nobody has at $1, behind the call $6 requested at $5, the longest
-- waiting first.
-- Index: tool_calls_claimable, sessions_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
SELECT
    f.session_id, {f.call}
FROM unnest($3::text[]) AS n (name)
CROSS JOIN LATERAL (
    SELECT
        c.session_id, {c.call}
    FROM tool_calls c
    CROSS JOIN clock k
    WHERE c.tenant = $2::integer AND c.waits_on = 'tool' AND c.name = n.name
      AND (c.requested_at, c.call_id) > ($5::bigint, $6::text)
      AND c.approval <> 'asked'
      AND (c.claimed_until IS NULL OR (c.claimed_until <= k.now AND c.repeat <> 'once'))
      -- Rows that a deleted session left behind do not count.
      AND EXISTS (SELECT FROM sessions s WHERE s.tenant = c.tenant AND s.session_id = c.session_id)
    ORDER BY c.requested_at, c.call_id
    LIMIT $4::bigint
) f
ORDER BY f.requested_at, f.call_id
LIMIT $4::bigint
