-- The words of a namespace's entries, from $2 up to $3, that have not expired by $4, at most $5, by
-- memories_namespace.
SELECT memory_id, words, updated_at
FROM memories
WHERE tenant = $1 AND namespace >= $2 AND namespace < $3 AND (expires_at IS NULL OR expires_at > $4)
LIMIT $5;
