-- Removes the pending deliveries of a deleted tenant, once a fan-out that was in progress has
-- ended.
-- Index: webhook_deliveries_due.
DELETE FROM webhook_deliveries d WHERE d.tenant = $1::integer AND d.due_at IS NOT NULL
