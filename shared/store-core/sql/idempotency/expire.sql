-- Removes idempotency keys created before $1, at most $2, by idempotency_keys_age.
DELETE FROM idempotency_keys WHERE (tenant, route, "key") IN (
    SELECT tenant, route, "key" FROM idempotency_keys
    WHERE created_at < $1
    ORDER BY created_at
    LIMIT $2
);
