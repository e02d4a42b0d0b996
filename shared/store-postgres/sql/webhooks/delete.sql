-- Deletes an endpoint.
-- Index: webhooks_pkey.
DELETE FROM webhooks w WHERE w.tenant = $1::integer AND w.webhook_id = $2::uuid
