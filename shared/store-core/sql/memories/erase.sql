-- Deletes at most $4 entries of a namespace, from $2 up to $3, by memories_namespace.
DELETE FROM memories WHERE n IN (
    SELECT n FROM memories
    WHERE tenant = $1 AND namespace >= $2 AND namespace < $3
    ORDER BY namespace, memory_id
    LIMIT $4
);
