-- Sends whose pause has ended and that are not running, at most $1 after the first $2. There are
-- few pauses; what waits for them is found by pause_waits_pause, the sends by their primary key.
SELECT w.tenant, w.send_id, s.session_id
FROM pauses p
JOIN pause_waits w ON w.pause_tenant = p.tenant AND w.kind = p.kind AND w.name = p.name
LEFT JOIN sends s ON s.tenant = w.tenant AND s.send_id = w.send_id
WHERE p.resumed_at IS NOT NULL AND (s.status IS NULL OR s.status <> 'running')
LIMIT $1 OFFSET $2;
