-- Writes an entry with another text.
UPDATE memories
SET metadata = $3, updated_at = $4, expires_at = $5, text = $6, words = $7, embedding = $8,
    embedding_model = $9
WHERE tenant = $1 AND memory_id = $2;
