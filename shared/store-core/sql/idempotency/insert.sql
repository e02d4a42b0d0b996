-- Remembers what a request's key led to.
INSERT INTO idempotency_keys (tenant, route, "key", body_hash, resource, created_at)
VALUES ($1, $2, $3, $4, $5, $6);
