-- What the sessions of a tenant that have a seat or wait for one run or would run, if it may be
-- this agent: the session's current agent has that name, or the send has an agent of its own or was
-- pinned to an earlier one. Those for which this is already recorded are left out.
-- Index: seats_pkey, sessions_pkey, sends_open, agents_pkey.
SELECT t.session_id, n.send_id, n.options, a.version, a.spec
FROM seats t
JOIN sessions x ON x.tenant = t.tenant AND x.session_id = t.session_id
CROSS JOIN LATERAL (
    SELECT s.send_id, s.agent_version, s.options FROM sends s
    WHERE s.tenant = t.tenant AND s.session_id = t.session_id
      AND s.finished_at IS NULL AND s.position IS NOT NULL
    ORDER BY s.position
    LIMIT 1
) n
JOIN agents a
    ON a.tenant = t.tenant AND a.session_id = t.session_id
    AND a.version = coalesce(n.agent_version, x.agent_version)
WHERE t.tenant = $1::integer
  AND (
      x.agent_name = $2::text OR n.agent_version <> x.agent_version
      OR n.options LIKE '%"agent":%'
  )
  AND (
      t.agent <> $2::text OR t.send_id IS DISTINCT FROM n.send_id
      OR t.agent_version IS DISTINCT FROM a.version
  )
