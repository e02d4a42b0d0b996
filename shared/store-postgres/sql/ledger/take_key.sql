-- Takes an idempotency key, or tells whose it is.
-- Index: idempotency_keys_pkey.
INSERT INTO idempotency_keys AS k (tenant, route, key, body_hash, resource, created_at)
VALUES (
    $2, $3, $4, $5, $6,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
-- Writes what is there, so that the row comes back.
ON CONFLICT (tenant, route, key) DO UPDATE SET resource = k.resource
RETURNING k.body_hash, k.resource, k.xmax = 0 AS taken
