-- Removes the pending deliveries of an endpoint.
-- Index: webhook_deliveries_due.
DELETE FROM webhook_deliveries d
WHERE d.tenant = $1::integer AND d.webhook_id = $2::uuid AND d.due_at IS NOT NULL
