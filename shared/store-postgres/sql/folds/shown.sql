-- Reads the shown folds of freshly claimed sessions whose caches lack them.
-- Index: folds_shown.
SELECT i.ord, f.tenant, f.session_id, {f.fold}
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, session_id, ord)
CROSS JOIN LATERAL (
    SELECT x.tenant, x.session_id, {x.fold}
    FROM folds x
    WHERE x.tenant = i.tenant AND x.session_id = i.session_id AND x.covered_by IS NULL
    -- Keeps the planner from joining the other way around.
    OFFSET 0
) f
ORDER BY i.ord, f.from_seq
