-- Reads what the sends of freshly claimed sessions are shown as once they are old, after the folds
-- of their windows, with the first message number of each transcript.
-- Index: projections_pkey, sessions_pkey.
SELECT i.ord, p.tenant, p.session_id, {p.projection}, s.first_seq
FROM unnest($1::integer[], $2::uuid[], $3::bigint[])
    WITH ORDINALITY AS i (tenant, session_id, from_seq, ord)
JOIN sessions s ON s.tenant = i.tenant AND s.session_id = i.session_id
CROSS JOIN LATERAL (
    SELECT x.tenant, x.session_id, {x.projection}
    FROM projections x
    WHERE x.tenant = i.tenant AND x.session_id = i.session_id AND x.from_seq >= i.from_seq
    -- Keeps the planner from joining the other way around.
    OFFSET 0
) p
ORDER BY i.ord, p.from_seq
