-- Stores an ask for a run, if it exists.
INSERT INTO run_asks (tenant, run_id, ask, created_at)
SELECT tenant, run_id, $3, $4 FROM runs WHERE tenant = $1 AND run_id = $2;
