-- Replaces a live key's secret at $4; the one before is accepted until $5.
UPDATE api_keys SET previous_hash = hash, previous_until = $5, hash = $3
WHERE tenant = $1 AND key_id = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $4);
