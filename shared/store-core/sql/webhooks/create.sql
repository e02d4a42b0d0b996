-- Creates an endpoint.
INSERT INTO webhooks (tenant, webhook_id, url, events, secret, created_at)
VALUES ($1, $2, $3, $4, $5, $6);
