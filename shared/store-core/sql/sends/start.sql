-- A queued send runs. $1 to $14 are the hot row, which is saved with it.
UPDATE sends
SET status = 'running', started_at = $16, agent_version = $17, alarm_at = deadline_at
WHERE tenant = $1 AND send_id = $15;
