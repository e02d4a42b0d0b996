-- Part of a step: a send that had begun runs again, with $22 crashes and its next alarm at $23.
UPDATE sends SET status = 'running', waiting_on = NULL, crashes = $22, alarm_at = $23
WHERE tenant = $1 AND send_id = $16;
