-- Puts an event on its way to an endpoint; does nothing where it is already.
INSERT INTO webhook_deliveries (tenant, webhook_id, event_id, type, resource, event_at, status, due_at)
VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7)
ON CONFLICT (tenant, webhook_id, event_id) DO NOTHING;
