-- What an idempotency key was taken for.
SELECT body_hash, resource FROM idempotency_keys WHERE tenant = $1 AND route = $2 AND "key" = $3;
