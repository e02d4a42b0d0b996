-- Writes an entry with another text.
-- Index: the primary key.
UPDATE memories
SET metadata = $3::text, updated_at = $4::bigint, expires_at = $5::bigint, text = $6::text,
    words = $7::text, embedding = $8::bytea, embedding_model = $9::text
WHERE tenant = $1::integer AND memory_id = $2::uuid
