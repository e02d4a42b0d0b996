-- Writes an endpoint after a change.
-- Index: webhooks_pkey.
UPDATE webhooks w SET
    url = $3::text, events = $4::text, secret = $5::text, previous_secret = $6::text,
    previous_until = $7::bigint, disabled_at = $8::bigint, disabled_reason = $9::text
WHERE w.tenant = $1::integer AND w.webhook_id = $2::uuid
