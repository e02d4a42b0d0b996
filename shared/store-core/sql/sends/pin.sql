-- Pins a send that starts to the version of its session's agent.
UPDATE sends SET agent_version = $3 WHERE tenant = $1 AND send_id = $2;
