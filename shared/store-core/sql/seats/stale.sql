-- Sessions at the head of the line of the tenant $1 for seats of the agent $2, leaves or others by
-- $3, that have something else to run by now: the send has ended, or the session has another agent.
-- By seats_agents.
SELECT f.session_id
FROM (SELECT w.tenant, w.session_id, w.send_id, w.agent_version FROM seats w
      WHERE w.tenant = $1 AND w.agent = $2 AND w.leaf = $3 AND w.waits_since IS NOT NULL
      ORDER BY w.waits_since, w.session_id
      LIMIT $4) f
WHERE NOT EXISTS (SELECT 1 FROM sends s
                  JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
                  WHERE s.tenant = f.tenant AND s.session_id = f.session_id AND s.send_id = f.send_id
                    AND s.finished_at IS NULL
                    AND coalesce(s.agent_version, c.agent_version) = f.agent_version);
