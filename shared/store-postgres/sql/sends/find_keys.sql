-- Looks up what idempotency keys were taken for, item by item. Keys of one route are the names of sessions.
-- Index: idempotency_keys_pkey, session_names_pkey.
WITH item AS (
    SELECT i.tenant, i.route, i.key, i.ord
    FROM unnest($1::integer[], $2::text[], $3::text[])
        WITH ORDINALITY AS i (tenant, route, key, ord)
)
SELECT i.ord, k.resource, k.body_hash
FROM item i
JOIN idempotency_keys k ON k.tenant = i.tenant AND k.route = i.route AND k.key = i.key
UNION ALL
SELECT i.ord, n.session_id, NULL::bytea
FROM item i
JOIN session_names n ON n.tenant = i.tenant AND n.name = i.key
WHERE i.route = 'session'
