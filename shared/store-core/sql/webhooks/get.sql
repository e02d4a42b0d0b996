-- An endpoint.
SELECT {webhook} FROM webhooks WHERE tenant = $1 AND webhook_id = $2;
