-- Removes what is on its way to a deleted tenant's endpoints, once a fan-out that had them in hand has ended.
-- Index: webhook_deliveries_due.
DELETE FROM webhook_deliveries d WHERE d.tenant = $1::integer AND d.due_at IS NOT NULL
