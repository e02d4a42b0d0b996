-- A key of a tenant that was not deleted, by api_keys_id.
SELECT k.tenant, k.key_id, k.name, k.scopes, k.hash, k.previous_hash, k.previous_until, k.created_at,
       k.expires_at, k.revoked_at, k.last_used_at, k.binding, k.limits
FROM api_keys k
JOIN tenants t ON t.tenant = k.tenant AND t.deleted_at IS NULL
WHERE k.key_id = $1;
