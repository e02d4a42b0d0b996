-- Updates an entry with a new text, and removes the vector of the old one.
UPDATE memories
SET metadata = $3, updated_at = $4, expires_at = $5, source = $6, text = $7, words = $8,
    embedding = NULL, embedding_model = NULL, embed_at = $4
WHERE tenant = $1 AND memory_id = $2;
