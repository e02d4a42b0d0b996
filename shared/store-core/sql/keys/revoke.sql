-- Revokes a key; one that is revoked keeps its time.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, $3) WHERE tenant = $1 AND key_id = $2;
