-- Writes a chunk of a blob's bytes.
INSERT INTO blob_chunks (tenant, sha256, generation, n, data) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, sha256, generation, n) DO UPDATE SET data = excluded.data;
