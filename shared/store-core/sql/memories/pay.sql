-- Stores the cost of vectors that no send pays for.
INSERT INTO memory_usage (tenant, call_id, model, "usage")
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, call_id) DO NOTHING;
