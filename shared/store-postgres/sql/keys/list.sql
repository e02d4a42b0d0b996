-- A tenant's keys, newest first.
-- Index: api_keys_pkey backwards.
SELECT
    k.tenant, k.key_id, k.name, k.scopes, k.hash, k.previous_hash, k.previous_until, k.created_at,
    k.expires_at, k.revoked_at, k.last_used_at, k.binding, k.limits
FROM api_keys k
WHERE k.tenant = $1::integer AND ($2::uuid IS NULL OR k.key_id < $2::uuid)
ORDER BY k.key_id DESC
LIMIT $3::bigint
