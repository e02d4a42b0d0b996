-- Removes deliveries that were settled long ago.
-- Index: webhook_deliveries_settled, webhook_deliveries_pkey.
WITH old AS MATERIALIZED (
    SELECT d.tenant, d.webhook_id, d.event_id FROM webhook_deliveries d
    WHERE d.settled_at < coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        - $2::bigint
      AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = d.tenant)
    ORDER BY d.settled_at
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_deliveries d USING old o
WHERE d.tenant = o.tenant AND d.webhook_id = o.webhook_id AND d.event_id = o.event_id
