-- Of the newest $6 entries of a namespace, from $2 up to $3, that have not expired and have a
-- vector of model $5: the $8 whose vectors are nearest to $7, with the cosines of the angles. A
-- vector of another size cannot be compared. The query vector is parsed once, not for each row.
-- Index: memories_namespace.
WITH asked AS MATERIALIZED (
    SELECT $7::text::vector AS vector
)
SELECT n.memory_id, n.updated_at, 1 - n.distance AS cosine
FROM (
    SELECT
        o.memory_id, o.updated_at,
        CASE WHEN vector_dims(o.embedding_vector) = vector_dims(a.vector)
            THEN o.embedding_vector <=> a.vector
        END AS distance
    FROM (
        SELECT m.memory_id, m.updated_at, m.embedding_vector
        FROM memories m
        WHERE m.tenant = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
          AND m.embedding_model = $5::text AND m.embedding_vector IS NOT NULL
          AND (m.expires_at IS NULL OR m.expires_at > $4::bigint)
        ORDER BY m.memory_id DESC
        LIMIT $6::bigint
    ) o
    CROSS JOIN asked a
) n
WHERE n.distance IS NOT NULL AND n.distance <> 'NaN'
ORDER BY n.distance, n.updated_at DESC, n.memory_id DESC
LIMIT $8::bigint
