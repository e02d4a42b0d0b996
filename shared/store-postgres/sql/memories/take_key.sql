-- Takes an idempotency key for an entry, or tells which entry has it.
-- Index: idempotency_keys_pkey.
INSERT INTO idempotency_keys AS k (tenant, route, key, body_hash, resource, created_at)
VALUES ($2::integer, $3::text, $4::text, $5::bytea, $6::uuid, $1::bigint)
-- Writes what is there, so that the row comes back.
ON CONFLICT (tenant, route, key) DO UPDATE SET resource = k.resource
RETURNING k.body_hash, k.resource, k.xmax = 0 AS taken
