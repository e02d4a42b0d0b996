-- Records when a key was last used.
UPDATE api_keys SET last_used_at = $2 WHERE key_id = $1;
