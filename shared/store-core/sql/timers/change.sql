-- Writes a timer after a change.
UPDATE timers
SET status = $3, next_n = $4, due_at = $5, fire_at = $6, failures = $7, failure = $8, last_send = $9,
    last_fired_at = $10, ended_at = $11, updated_at = $12
WHERE tenant = $1 AND timer_id = $2;
