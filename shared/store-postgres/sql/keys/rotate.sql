-- Replaces a live key's secret; a repeat finds the new secret and changes nothing.
-- Index: api_keys_pkey.
WITH n AS (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now)
UPDATE api_keys k SET
    previous_hash = CASE WHEN k.hash = $4::bytea THEN k.previous_hash ELSE k.hash END,
    previous_until = CASE WHEN k.hash = $4::bytea THEN k.previous_until ELSE n.now + $5::bigint END,
    hash = $4::bytea
FROM n
WHERE k.tenant = $2::integer AND k.key_id = $3::uuid AND k.revoked_at IS NULL
  AND (k.expires_at IS NULL OR k.expires_at > n.now)
RETURNING
    k.tenant, k.key_id, k.name, k.scopes, k.hash, k.previous_hash, k.previous_until, k.created_at,
    k.expires_at, k.revoked_at, k.last_used_at, k.binding, k.limits
