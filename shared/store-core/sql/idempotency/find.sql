-- What a request's key led to before.
SELECT body_hash, resource FROM idempotency_keys WHERE tenant = $1 AND route = $2 AND "key" = $3;
