-- The tenants that have endpoints.
-- Index: webhooks_pkey.
SELECT DISTINCT w.tenant FROM webhooks w
