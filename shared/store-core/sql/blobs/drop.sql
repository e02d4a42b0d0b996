-- Removes the last pieces of a blob's bytes, at most $4. Index: the primary key.
DELETE FROM blob_chunks
WHERE tenant = $1 AND sha256 = $2 AND generation = $3 AND n IN (
    SELECT c.n FROM blob_chunks c
    WHERE c.tenant = $1 AND c.sha256 = $2 AND c.generation = $3
    ORDER BY c.n DESC LIMIT $4
);
