-- Revokes a key; a revoked key keeps its time of revocation.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, $3) WHERE tenant = $1 AND key_id = $2;
