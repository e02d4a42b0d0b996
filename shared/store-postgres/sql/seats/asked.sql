-- What sessions that want a seat would run: the first open send that has its place.
-- Index: session_hot_pkey, sends_open.
SELECT i.ord, h.active = 1 AS has_one, h.ready_since, n.run_id IS NOT NULL AS leaf
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, session_id, ord)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
CROSS JOIN LATERAL (
    SELECT s.run_id FROM sends s
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id
      AND s.finished_at IS NULL AND s.position IS NOT NULL
    ORDER BY s.position
    LIMIT 1
) n
WHERE h.ready_since IS NOT NULL AND h.lifecycle <> 2
