-- A tenant's endpoints, newest first.
-- Index: webhooks_pkey backwards.
SELECT {w.webhook} FROM webhooks w
WHERE w.tenant = $1::integer AND w.webhook_id < $2::uuid
ORDER BY w.webhook_id DESC
LIMIT $3::bigint
