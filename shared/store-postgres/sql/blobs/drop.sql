-- Removes the last chunks of a blob's bytes, at most $4. Index: the primary key.
DELETE FROM blob_chunks d
WHERE d.tenant = $1::integer AND d.sha256 = $2::bytea AND d.generation = $3::uuid AND d.n = ANY (ARRAY(
    SELECT c.n FROM blob_chunks c
    WHERE c.tenant = $1::integer AND c.sha256 = $2::bytea AND c.generation = $3::uuid
    ORDER BY c.n DESC LIMIT $4::bigint
))
