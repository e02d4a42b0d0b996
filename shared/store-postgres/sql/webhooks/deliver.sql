-- Queues deliveries of events to endpoints; does nothing for deliveries that exist.
-- Index: webhook_deliveries_pkey.
INSERT INTO webhook_deliveries (
    tenant, webhook_id, event_id, type, resource, event_at, status, due_at
)
SELECT i.tenant, i.webhook_id, i.event_id, i.type, i.resource, i.event_at, 'pending', $1::bigint
FROM unnest(
    $2::integer[], $3::uuid[], $4::uuid[], $5::text[], $6::uuid[], $7::bigint[]
) AS i (tenant, webhook_id, event_id, type, resource, event_at)
ON CONFLICT (tenant, webhook_id, event_id) DO NOTHING
