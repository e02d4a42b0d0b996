-- Locks the records of sends whose pause has ended and that are not running, so that none is
-- recorded anew until the transaction ends. There are few pauses; what waits for them is found by
-- pause_waits_pause, the sends by their primary key.
SELECT w.tenant, w.send_id
FROM pauses p
JOIN pause_waits w ON w.pause_tenant = p.tenant AND w.kind = p.kind AND w.name = p.name
LEFT JOIN sends s ON s.tenant = w.tenant AND s.send_id = w.send_id
WHERE p.resumed_at IS NOT NULL AND s.status IS DISTINCT FROM 'running'
  AND NOT EXISTS (SELECT FROM tenants_away a WHERE a.tenant = w.tenant)
LIMIT $1::bigint
FOR UPDATE OF w SKIP LOCKED
