-- Removes deliveries that were settled before $1, at most $2, by webhook_deliveries_settled.
DELETE FROM webhook_deliveries WHERE (tenant, webhook_id, event_id) IN (
    SELECT tenant, webhook_id, event_id FROM webhook_deliveries
    WHERE settled_at < $1
    ORDER BY settled_at
    LIMIT $2
);
