-- Creates a key of a tenant that was not deleted; a repeat returns the existing one.
-- Index: tenants_pkey, api_keys_pkey.
INSERT INTO api_keys AS k (tenant, key_id, name, scopes, hash, created_at, expires_at, binding, limits)
SELECT
    t.tenant, $3::uuid, $4::text, $5::text, $6::bytea, coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint), $7::bigint, $8::text, $9::text
FROM tenants t WHERE t.tenant = $2::integer AND t.deleted_at IS NULL AND t.erasing_at IS NULL
ON CONFLICT (tenant, key_id) DO UPDATE SET name = k.name
RETURNING
    k.tenant, k.key_id, k.name, k.scopes, k.hash, k.previous_hash, k.previous_until, k.created_at,
    k.expires_at, k.revoked_at, k.last_used_at, k.binding, k.limits
