-- Stores the cost of vectors that no send pays for.
-- Index: the primary key.
INSERT INTO memory_usage (tenant, call_id, model, usage)
VALUES ($1::integer, $2::uuid, $3::text, $4::text)
ON CONFLICT (tenant, call_id) DO NOTHING
