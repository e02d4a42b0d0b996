-- A queued send, its first step, and what both change in the hot row. The step's columns of a
-- send that needs no grant: epoch 0, the accepting boot.
INSERT INTO sends (tenant, session_id, send_id, position, status, input, options,
                   deadline_at, alarm_at, first_step, created_at, reports_to,
                   run_id, run_path, run_attempt)
VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8, $9, $10, $17, $18, $19, $20);
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
VALUES ($1, $2, $9, $3, 'accepted', $11, $12, $10, '{}');
UPDATE session_hot
SET next_position = $13, next_step = $9 + 1, pending = $14, ready_since = $15, priority = $16
WHERE tenant = $1 AND session_id = $2;
