-- Queues the delivery of an event to an endpoint; does nothing if the delivery exists.
INSERT INTO webhook_deliveries (tenant, webhook_id, event_id, type, resource, event_at, status, due_at)
VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7)
ON CONFLICT (tenant, webhook_id, event_id) DO NOTHING;
