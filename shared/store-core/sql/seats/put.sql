-- Records that the session $2 has a seat ($4 is null) or waits for one, and for what: the agent $5,
-- the send $6, and the version $7 of the session's agent. A session that already waits keeps its
-- place in the line. By the primary key.
INSERT INTO seats (tenant, session_id, leaf, waits_since, agent, send_id, agent_version)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, session_id) DO UPDATE SET
    leaf = excluded.leaf,
    agent = excluded.agent,
    send_id = excluded.send_id,
    agent_version = excluded.agent_version,
    waits_since = CASE WHEN excluded.waits_since IS NOT NULL
                       THEN coalesce(seats.waits_since, excluded.waits_since) END,
    called_at = NULL;
