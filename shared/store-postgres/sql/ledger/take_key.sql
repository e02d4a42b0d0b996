-- Takes an idempotency key, or returns what it was taken for.
-- Index: idempotency_keys_pkey.
INSERT INTO idempotency_keys AS k (tenant, route, key, body_hash, resource, created_at)
VALUES (
    $2, $3, $4, $5, $6,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
-- A no-op update, so that the existing row is returned.
ON CONFLICT (tenant, route, key) DO UPDATE SET resource = k.resource
RETURNING k.body_hash, k.resource, k.xmax = 0 AS taken
