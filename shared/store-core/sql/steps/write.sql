-- The end of every step: its row, and the hot row that it leaves behind. The files that a step is
-- made of share one numbering: $1 to $14 are the hot row, $15 to $21 the step, the rest is theirs.
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
VALUES ($1, $2, $15, $16, $17, $18, $19, $20, $21);
UPDATE session_hot
SET writes = CASE WHEN $4 IS NULL OR $4 = token THEN writes ELSE 0 END,
    owner_boot = $3, token = $4, epoch = $5, next_seq = $6, next_position = $7, next_step = $8,
    pending = $9, signals = $10, ready_since = $11, lifecycle = $12, pool = $13, priority = $14
WHERE tenant = $1 AND session_id = $2;
