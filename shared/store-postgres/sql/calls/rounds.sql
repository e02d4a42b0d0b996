-- Reads the calls of rounds, by their places. What a round's ids begin with and what comes behind
-- them all bound a piece of the key.
-- Index: tool_calls_pkey, sessions_pkey.
SELECT
    i.ord, c.call_id, c.session_id, c.send_id, c.round, c.place, c.name, c.arguments, c.repeat,
    c.waits_on, c.approval, c.started_epoch, c.attempt, c.deadline_at, c.result, c.requested_at,
    c.settled_at
FROM unnest($1::integer[], $2::text[], $3::text[])
    WITH ORDINALITY AS i (tenant, first_id, behind, ord)
CROSS JOIN LATERAL (
    SELECT
        d.call_id, d.session_id, d.send_id, d.round, d.place, d.name, d.arguments, d.repeat,
        d.waits_on, d.approval, d.started_epoch, d.attempt, d.deadline_at, d.result,
        d.requested_at, d.settled_at
    FROM tool_calls d
    WHERE d.tenant = i.tenant AND d.call_id >= i.first_id AND d.call_id < i.behind
    -- Keeps the planner from reading the calls of all rounds at once.
    OFFSET 0
) c
-- What a deleted session left behind is nobody's.
JOIN sessions s ON s.tenant = i.tenant AND s.session_id = c.session_id
ORDER BY i.ord, c.place
