-- Revokes a key; a revoked key keeps its time of revocation.
-- Index: api_keys_pkey.
UPDATE api_keys k SET revoked_at = coalesce(k.revoked_at, $1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE k.tenant = $2::integer AND k.key_id = $3::uuid
