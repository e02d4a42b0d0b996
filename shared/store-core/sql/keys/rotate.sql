-- Replaces a live key's secret at $4; the previous one is accepted until $5. A repeat finds the new
-- secret and changes nothing. MySQL assigns from left to right: the secret comes last.
UPDATE api_keys SET
    previous_hash = CASE WHEN hash = $3 THEN previous_hash ELSE hash END,
    previous_until = CASE WHEN hash = $3 THEN previous_until ELSE $5 END,
    hash = $3
WHERE tenant = $1 AND key_id = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $4);
