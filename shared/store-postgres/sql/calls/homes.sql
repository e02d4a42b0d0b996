-- Finds the sessions, sends and rounds of calls that are answered in the name of a session: its own
-- calls, or those of a session that has it among its ancestors, at most 16 levels up. No row for
-- any other call. A call never moves, and a session keeps its parent.
-- Index: tool_calls_pkey, sessions_pkey.
WITH RECURSIVE chain AS (
    SELECT
        i.ord, i.tenant, i.above, c.session_id, c.send_id, c.round, c.session_id AS at, 0 AS steps
    FROM unnest($1::integer[], $2::text[], $3::uuid[])
        WITH ORDINALITY AS i (tenant, call_id, above, ord)
    JOIN tool_calls c ON c.tenant = i.tenant AND c.call_id = i.call_id
    UNION ALL
    SELECT
        k.ord, k.tenant, k.above, k.session_id, k.send_id, k.round, s.parent_session, k.steps + 1
    FROM chain k
    JOIN sessions s ON s.tenant = k.tenant AND s.session_id = k.at
    WHERE k.at <> k.above AND k.steps < 16 AND s.parent_session IS NOT NULL
)
SELECT k.ord, k.tenant, k.session_id, k.send_id, k.round
FROM chain k
JOIN sessions s ON s.tenant = k.tenant AND s.session_id = k.at
WHERE k.at = k.above
