-- Records which sessions have a seat (`since` is null) and which wait for one, and for what: the
-- agent, if it has a limit, the send, and the version of the session's agent. A session that
-- already waits keeps its place in the line.
-- Index: seats_pkey.
INSERT INTO seats AS t (tenant, session_id, leaf, waits_since, agent, send_id, agent_version)
SELECT $1::integer, i.session_id, i.leaf, i.since, i.agent, i.send_id, i.agent_version
FROM unnest($2::uuid[], $3::boolean[], $4::bigint[], $5::text[], $6::uuid[], $7::integer[])
    AS i (session_id, leaf, since, agent, send_id, agent_version)
ON CONFLICT (tenant, session_id) DO UPDATE SET
    leaf = excluded.leaf,
    agent = excluded.agent,
    send_id = excluded.send_id,
    agent_version = excluded.agent_version,
    waits_since = CASE WHEN excluded.waits_since IS NOT NULL
                       THEN coalesce(t.waits_since, excluded.waits_since) END,
    called_at = NULL
