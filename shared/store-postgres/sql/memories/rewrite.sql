-- Updates an entry with a new text, and removes the vector of the old one.
-- Index: the primary key.
UPDATE memories
SET metadata = $3::text, updated_at = $4::bigint, expires_at = $5::bigint, source = $6::text,
    text = $7::text, words = $8::text, embedding = NULL, embedding_model = NULL, embed_at = $4::bigint
WHERE tenant = $1::integer AND memory_id = $2::uuid
