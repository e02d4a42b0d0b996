-- Removes API keys that were revoked or expired before $1, at most $2. There are few, and all are
-- read.
DELETE FROM api_keys
WHERE key_id IN (
    SELECT key_id FROM api_keys
    WHERE revoked_at < $1 OR expires_at < $1
    ORDER BY key_id
    LIMIT $2
);
