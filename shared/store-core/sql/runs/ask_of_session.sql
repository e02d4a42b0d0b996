-- Stores an ask for each run of a session that is not final, by runs_session.
INSERT INTO run_asks (tenant, run_id, ask, created_at)
SELECT tenant, run_id, $3, $4 FROM runs
WHERE tenant = $1 AND session_id = $2 AND finished_at IS NULL
ORDER BY run_id;
