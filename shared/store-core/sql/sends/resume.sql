-- Part of a step: a send that had begun runs again, with $22 crashes, its next alarm at $23 and $24
-- attempts.
UPDATE sends
SET status = 'running', waiting_on = NULL, crashes = $22, alarm_at = $23, attempts = $24
WHERE tenant = $1 AND send_id = $16;
