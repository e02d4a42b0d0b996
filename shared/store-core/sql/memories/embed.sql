-- Sets the vector of an entry to $4, made by model $5, if its text is still $3.
UPDATE memories SET embedding = $4, embedding_model = $5, embed_at = NULL
WHERE tenant = $1 AND memory_id = $2 AND text = $3;
