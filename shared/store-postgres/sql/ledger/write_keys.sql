-- Stores idempotency keys. A key without a row in the result was taken in the meantime.
-- Index: idempotency_keys_pkey.
INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
SELECT i.tenant, i.route, i.key, i.body_hash, i.resource, $1::bigint
FROM unnest($2::integer[], $3::text[], $4::text[], $5::bytea[], $6::uuid[])
    AS i (tenant, route, key, body_hash, resource)
ORDER BY i.tenant, i.route, i.key
ON CONFLICT DO NOTHING
RETURNING resource
