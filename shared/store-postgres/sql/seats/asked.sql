-- What sessions that want a seat would run: the first open send that has a position, and the agent
-- version that it is pinned to or would be pinned to. Options and specs only if agents of the
-- tenant have limits ($3).
-- Index: session_hot_pkey, sessions_pkey, sends_open, agents_pkey.
SELECT
    i.ord, h.active = 1 AS has_one, h.ready_since, n.run_id IS NOT NULL AS leaf, n.send_id,
    coalesce(n.agent_version, x.agent_version) AS agent_version,
    CASE WHEN $3::boolean THEN n.options END AS options,
    a.spec
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, session_id, ord)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
JOIN sessions x ON x.tenant = h.tenant AND x.session_id = h.session_id
CROSS JOIN LATERAL (
    SELECT s.run_id, s.send_id, s.agent_version, s.options FROM sends s
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id
      AND s.finished_at IS NULL AND s.position IS NOT NULL
    ORDER BY s.position
    LIMIT 1
) n
LEFT JOIN agents a
    ON $3::boolean AND a.tenant = h.tenant AND a.session_id = h.session_id
    AND a.version = coalesce(n.agent_version, x.agent_version)
WHERE h.ready_since IS NOT NULL AND h.lifecycle <> 2
