-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM webhook_deliveries WHERE (tenant, webhook_id, event_id) IN (
    SELECT tenant, webhook_id, event_id FROM webhook_deliveries WHERE tenant = $1 LIMIT $2
);
