-- Sets the vector of an entry to $4, made by model $5, if its text is still $3.
-- Index: the primary key.
UPDATE memories SET embedding = $4::bytea, embedding_model = $5::text, embed_at = NULL
WHERE tenant = $1::integer AND memory_id = $2::uuid AND text = $3::text
