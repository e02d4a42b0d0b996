-- Stores a timer.
INSERT INTO timers (tenant, timer_id, session_id, target, rule, status, next_n, due_at, fire_at, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10);
