-- A timer by its key.
SELECT tenant, timer_id, target, rule, status, next_n, due_at, fire_at, failures, failure, last_send,
       last_fired_at, ended_at, created_at, updated_at
FROM timers
WHERE tenant = $1 AND timer_id = $2;
