-- Enters an entry; does nothing where its id is known.
INSERT INTO memories (tenant, memory_id, namespace, text, metadata, source, words, embedding,
                      embedding_model, created_at, updated_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11)
ON CONFLICT (tenant, memory_id) DO NOTHING;
