-- Writes the row of an advance.
INSERT INTO run_steps (tenant, run_id, n, at, boot, changes) VALUES ($1, $2, $3, $4, $5, $6);
