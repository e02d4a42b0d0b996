-- A send waits. Its crash count starts again: this is a durable step.
UPDATE sends
SET status = 'waiting', waiting_on = $3, alarm_at = $4, usage = $5, rounds = $6, attempts = $7,
    crashes = 0
WHERE tenant = $1 AND send_id = $2;
