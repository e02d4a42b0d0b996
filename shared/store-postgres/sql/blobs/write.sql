-- Writes a chunk of a blob's bytes. Index: the primary key.
INSERT INTO blob_chunks (tenant, sha256, generation, n, data)
VALUES ($1::integer, $2::bytea, $3::uuid, $4::integer, $5::bytea)
ON CONFLICT (tenant, sha256, generation, n) DO UPDATE SET data = excluded.data
