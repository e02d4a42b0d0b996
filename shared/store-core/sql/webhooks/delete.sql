-- Deletes an endpoint.
DELETE FROM webhooks WHERE tenant = $1 AND webhook_id = $2;
