-- Gives seats to the running sends of the tenant $1. By sends_open.
INSERT INTO seats (tenant, session_id, leaf)
SELECT s.tenant, s.session_id, s.run_id IS NOT NULL
FROM sends s
WHERE s.tenant = $1 AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
ON CONFLICT (tenant, session_id) DO UPDATE SET
    leaf = excluded.leaf, waits_since = NULL, called_at = NULL;
