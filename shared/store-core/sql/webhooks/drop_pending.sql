-- Removes the pending deliveries of an endpoint, by webhook_deliveries_due.
DELETE FROM webhook_deliveries WHERE tenant = $1 AND webhook_id = $2 AND due_at IS NOT NULL;
