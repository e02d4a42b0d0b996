-- Reads the sends of a run that are not final. Rarely asked for, and there are never many open sends
-- beside those of runs: no index of its own.
-- Index: sends_open.
SELECT s.send_id
FROM sends s
WHERE s.tenant = $1::integer AND s.run_id = $2::uuid AND s.finished_at IS NULL
ORDER BY s.send_id
