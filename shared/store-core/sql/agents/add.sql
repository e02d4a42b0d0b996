-- Adds a version of a session's agent, which becomes the current one.
UPDATE sessions SET agent_version = agent_version + 1, agent_name = $4
WHERE tenant = $1 AND session_id = $2;
INSERT INTO agents (tenant, session_id, version, spec)
SELECT tenant, session_id, agent_version, $3 FROM sessions WHERE tenant = $1 AND session_id = $2;
UPDATE session_hot SET context_version = context_version + 1 WHERE tenant = $1 AND session_id = $2;
