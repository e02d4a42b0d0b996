-- What MySQL says differently about the keys of providers.

-- name: provider_keys/save
-- Sets a key, in the place of the one before. Index: the primary key.
INSERT INTO provider_keys (tenant, provider, sealed, hint, set_at) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE sealed = VALUES(sealed), hint = VALUES(hint), set_at = VALUES(set_at);
