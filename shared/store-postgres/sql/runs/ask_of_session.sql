-- Stores an ask for each run of a session that is not final.
-- Index: runs_session.
INSERT INTO run_asks (tenant, run_id, ask, created_at)
SELECT r.tenant, r.run_id, $3::text, $4::bigint FROM runs r
WHERE r.tenant = $1::integer AND r.session_id = $2::uuid AND r.finished_at IS NULL
ORDER BY r.run_id
