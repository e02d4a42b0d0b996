-- The tenants that have endpoints.
SELECT DISTINCT tenant FROM webhooks;
