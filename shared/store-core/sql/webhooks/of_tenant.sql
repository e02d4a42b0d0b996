-- All endpoints of a tenant.
SELECT {webhook} FROM webhooks WHERE tenant = $1 ORDER BY webhook_id;
