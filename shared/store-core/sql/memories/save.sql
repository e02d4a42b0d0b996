-- Inserts an entry, without a vector; does nothing if its id exists.
INSERT INTO memories (tenant, memory_id, namespace, text, metadata, source, words, created_at,
                      updated_at, embed_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8, $9)
ON CONFLICT (tenant, memory_id) DO NOTHING;
