-- What MySQL says differently about idempotency keys.

-- name: idempotency/expire
-- Removes the oldest keys from before $1, at most $2.
DELETE FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2;
