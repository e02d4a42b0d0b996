-- A send runs, for the first time or again.
UPDATE sends
SET status = 'running', waiting_on = NULL, crashes = $3, alarm_at = $4, started_at = $5,
    agent_version = $6
WHERE tenant = $1 AND send_id = $2;
