-- An endpoint, by id.
SELECT {webhook} FROM webhooks WHERE tenant = $1 AND webhook_id = $2;
