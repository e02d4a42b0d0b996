-- Creates an endpoint; does nothing if it exists.
-- Index: webhooks_pkey.
INSERT INTO webhooks (tenant, webhook_id, url, events, secret, created_at)
VALUES (
    $2::integer, $3::uuid, $4::text, $5::text, $6::text,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
ON CONFLICT (tenant, webhook_id) DO NOTHING
