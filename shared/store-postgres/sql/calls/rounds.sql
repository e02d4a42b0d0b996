-- Reads the calls of rounds, in the order of their places. A round is a key range: from the prefix
-- of its ids up to, but not including, the first key after them.
-- Index: tool_calls_pkey, sessions_pkey.
SELECT
    i.ord, c.session_id, {c.call}
FROM unnest($1::integer[], $2::text[], $3::text[])
    WITH ORDINALITY AS i (tenant, first_id, behind, ord)
CROSS JOIN LATERAL (
    SELECT
        d.session_id, {d.call}
    FROM tool_calls d
    WHERE d.tenant = i.tenant AND d.call_id >= i.first_id AND d.call_id < i.behind
    -- Keeps the planner from reading the calls of all rounds at once.
    OFFSET 0
) c
-- Rows that a deleted session left behind do not count.
JOIN sessions s ON s.tenant = i.tenant AND s.session_id = c.session_id
ORDER BY i.ord, c.place
