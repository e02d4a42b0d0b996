-- An endpoint that is about to be changed. One writer at a time keeps others from it here.
SELECT {webhook} FROM webhooks WHERE tenant = $1 AND webhook_id = $2;
