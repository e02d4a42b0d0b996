-- Takes sessions at the head of a tenant's line for seats of limited agents, of these kinds, and
-- makes those wait for any seat that have something else to run by now: the send has ended, or the
-- session has another agent.
-- Index: seats_agents, seats_pkey, sends_pkey, sessions_pkey.
UPDATE seats w SET agent = '', send_id = NULL, agent_version = NULL
WHERE w.tenant = $1::integer AND w.waits_since IS NOT NULL
  AND w.session_id IN (
      SELECT f.session_id
      FROM unnest($2::text[], $3::boolean[]) AS k (agent, leaf)
      CROSS JOIN LATERAL (
          SELECT s.tenant, s.session_id, s.send_id, s.agent_version FROM seats s
          WHERE s.tenant = $1::integer AND s.agent = k.agent AND s.leaf = k.leaf
            AND s.waits_since IS NOT NULL
          ORDER BY s.waits_since, s.session_id
          LIMIT $4::bigint
      ) f
      WHERE NOT EXISTS (
          SELECT FROM sends n
          JOIN sessions x ON x.tenant = n.tenant AND x.session_id = n.session_id
          WHERE n.tenant = f.tenant AND n.send_id = f.send_id AND n.session_id = f.session_id
            AND n.finished_at IS NULL
            AND coalesce(n.agent_version, x.agent_version) = f.agent_version
      )
  )
