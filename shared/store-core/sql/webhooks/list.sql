-- A tenant's endpoints before $2, newest first, at most $3.
SELECT {webhook} FROM webhooks
WHERE tenant = $1 AND webhook_id < $2
ORDER BY webhook_id DESC
LIMIT $3;
