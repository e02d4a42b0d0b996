-- Writes the hot row as the transaction left it.
UPDATE session_hot
SET writes = CASE WHEN $4 IS NULL OR $4 = token THEN writes ELSE 0 END,
    owner_boot = $3, token = $4, epoch = $5, next_seq = $6, next_position = $7, next_step = $8,
    pending = $9, signals = $10, ready_since = $11, lifecycle = $12, pool = $13, priority = $14
WHERE tenant = $1 AND session_id = $2;
