-- Recorded events, oldest first; locked, skipping those that others have locked.
-- Index: webhook_events_at.
SELECT e.tenant, e.source, e.n, e.type, e.resource, e.at
FROM webhook_events e
WHERE NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = e.tenant)
ORDER BY e.at
LIMIT $1::bigint
FOR UPDATE SKIP LOCKED
