-- Removes the last chunks of a blob's bytes, at most $4. Index: the primary key.
DELETE FROM blob_chunks
WHERE tenant = $1 AND sha256 = $2 AND generation = $3 AND n IN (
    SELECT n FROM blob_chunks
    WHERE tenant = $1 AND sha256 = $2 AND generation = $3
    ORDER BY n DESC
    LIMIT $4
);
