-- An endpoint that is about to be changed, locked.
SELECT {webhook} FROM webhooks WHERE tenant = $1 AND webhook_id = $2 {lock};
