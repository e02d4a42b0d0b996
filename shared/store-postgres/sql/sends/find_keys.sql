-- Looks up what idempotency keys were taken for, item by item.
-- Index: idempotency_keys_pkey.
SELECT i.ord, k.resource, k.body_hash
FROM unnest($1::integer[], $2::text[], $3::text[]) WITH ORDINALITY AS i (tenant, route, key, ord)
JOIN idempotency_keys k ON k.tenant = i.tenant AND k.route = i.route AND k.key = i.key
