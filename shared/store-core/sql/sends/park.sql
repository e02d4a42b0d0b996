-- Part of a step: a send waits for $27, until $28 at most. Its crash count starts again, since this
-- is durable.
UPDATE sends
SET status = 'waiting', waiting_on = $27, alarm_at = $28, "usage" = $24, rounds = $25,
    attempts = $26, crashes = 0
WHERE tenant = $1 AND send_id = $16;
