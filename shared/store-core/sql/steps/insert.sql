-- Inserts the step of a change.
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
VALUES ($1, $2, $17, $18, $19, $20, $21, $22, $23);
