-- Records what the session $2 runs or waits for: the agent $3, if it has a limit, the send $4, and
-- the version $5 of the session's agent. By the primary key.
UPDATE seats SET agent = $3, send_id = $4, agent_version = $5 WHERE tenant = $1 AND session_id = $2;
