-- What MySQL says differently about webhooks.

-- name: webhooks/note
-- Notes an event of a step; does nothing where it is known.
INSERT INTO webhook_events (tenant, source, n, type, resource, at)
VALUES ($1, $2, $3, $4, $5, $6)
ON DUPLICATE KEY UPDATE n = n;

-- name: webhooks/lock_tenant
-- A tenant, unless it was deleted; locked.
SELECT tenant FROM tenants WHERE tenant = $1 AND deleted_at IS NULL FOR UPDATE;

-- name: webhooks/lock
-- An endpoint that is about to be changed; locked.
SELECT {webhook} FROM webhooks WHERE tenant = $1 AND webhook_id = $2 FOR UPDATE;

-- name: webhooks/events
-- Events that were noted, oldest first, at most $1, by webhook_events_at; locked.
SELECT tenant, source, n, type, resource, at FROM webhook_events
ORDER BY at
LIMIT $1
FOR UPDATE SKIP LOCKED;

-- name: webhooks/of_tenant
-- All endpoints of a tenant, which nobody deletes until the transaction ends.
SELECT {webhook} FROM webhooks WHERE tenant = $1 ORDER BY webhook_id LOCK IN SHARE MODE;

-- name: webhooks/deliver
-- Puts an event on its way to an endpoint; does nothing where it is already.
INSERT INTO webhook_deliveries (tenant, webhook_id, event_id, type, resource, event_at, status, due_at)
VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7)
ON DUPLICATE KEY UPDATE attempts = attempts;

-- name: webhooks/due_of
-- Deliveries of an endpoint that are due by $3, oldest first, at most $4, by webhook_deliveries_due; locked.
SELECT {delivery} FROM webhook_deliveries
WHERE tenant = $1 AND webhook_id = $2 AND due_at <= $3
ORDER BY due_at, event_id
LIMIT $4
FOR UPDATE SKIP LOCKED;

-- name: webhooks/retire
-- Removes deliveries that were settled before $1, at most $2, by webhook_deliveries_settled.
DELETE FROM webhook_deliveries WHERE settled_at < $1 ORDER BY settled_at LIMIT $2;
