-- A tenant's keys, newest first, before $2, at most $3.
SELECT k.tenant, k.key_id, k.name, k.scopes, k.hash, k.previous_hash, k.previous_until, k.created_at,
       k.expires_at, k.revoked_at, k.last_used_at, k.binding, k.limits
FROM api_keys k
WHERE k.tenant = $1 AND ($2 IS NULL OR k.key_id < $2)
ORDER BY k.key_id DESC
LIMIT $3;
