-- Deletes at most $4 entries of a namespace, from $2 up to $3.
-- Index: memories_namespace.
DELETE FROM memories d
WHERE d.tenant = $1::integer AND d.memory_id IN (
    SELECT m.memory_id FROM memories m
    WHERE m.tenant = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
    ORDER BY m.namespace, m.memory_id
    LIMIT $4::bigint
)
