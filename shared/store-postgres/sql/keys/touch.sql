-- Records when keys were last used. They are locked in the order of their ids, so that two such
-- statements do not deadlock.
-- Index: api_keys_id.
WITH l AS (
    SELECT k.tenant, k.key_id FROM api_keys k
    WHERE k.key_id = ANY ($2::uuid[])
    ORDER BY k.key_id
    FOR UPDATE
)
UPDATE api_keys k SET last_used_at = coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM l WHERE k.tenant = l.tenant AND k.key_id = l.key_id
