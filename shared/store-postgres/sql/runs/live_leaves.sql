-- Reads the sends of a run that are not final. It needs no index of its own: it is rarely called,
-- and few open sends are not of runs.
-- Index: sends_open.
SELECT s.send_id
FROM sends s
WHERE s.tenant = $1::integer AND s.run_id = $2::uuid AND s.finished_at IS NULL
ORDER BY s.send_id
