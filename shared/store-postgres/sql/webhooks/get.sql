-- An endpoint, by id.
-- Index: webhooks_pkey.
SELECT {w.webhook} FROM webhooks w WHERE w.tenant = $1::integer AND w.webhook_id = $2::uuid
