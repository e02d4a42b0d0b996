-- A chunk of a blob's bytes. Index: the primary key.
SELECT data FROM blob_chunks WHERE tenant = $1 AND sha256 = $2 AND generation = $3 AND n = $4;
