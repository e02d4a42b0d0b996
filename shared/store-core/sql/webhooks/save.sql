-- Writes an endpoint after a change.
UPDATE webhooks
SET url = $3, events = $4, secret = $5, previous_secret = $6, previous_until = $7, disabled_at = $8,
    disabled_reason = $9
WHERE tenant = $1 AND webhook_id = $2;
