-- Records that sessions run or wait for the agent, which has a limit, with their sends and the
-- versions of their agents.
-- Index: seats_pkey.
UPDATE seats t SET agent = $2::text, send_id = i.send_id, agent_version = i.agent_version
FROM unnest($3::uuid[], $4::uuid[], $5::integer[]) AS i (session_id, send_id, agent_version)
WHERE t.tenant = $1::integer AND t.session_id = i.session_id
