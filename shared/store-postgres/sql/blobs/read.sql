-- A chunk of a blob's bytes. Index: the primary key.
SELECT data FROM blob_chunks
WHERE tenant = $1::integer AND sha256 = $2::bytea AND generation = $3::uuid AND n = $4::integer
