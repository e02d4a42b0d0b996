-- Stores what an idempotency key was taken for.
INSERT INTO idempotency_keys (tenant, route, "key", body_hash, resource, created_at)
VALUES ($1, $2, $3, $4, $5, $6);
