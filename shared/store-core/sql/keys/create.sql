-- Creates a key.
INSERT INTO api_keys (tenant, key_id, name, scopes, hash, created_at, expires_at, binding, limits)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);
