-- Writes the hot row after a change, except context_version, which is raised by whoever changes the
-- context.
UPDATE session_hot
SET owner_boot = $3, token = $4, epoch = $5, next_seq = $6, next_position = $7, next_step = $8,
    pending = $9, signals = $10, ready_since = $11, lifecycle = $12, pool = $13, priority = $14,
    writes = $15, spent = $16
WHERE tenant = $1 AND session_id = $2;
