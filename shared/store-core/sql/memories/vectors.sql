-- The vectors that model $5 made of a namespace's newest entries, from $2 up to $3, that have not
-- expired by $4, at most $6, by memories_namespace.
SELECT memory_id, embedding, updated_at
FROM memories
WHERE tenant = $1 AND namespace >= $2 AND namespace < $3 AND embedding_model = $5
  AND (expires_at IS NULL OR expires_at > $4)
ORDER BY memory_id DESC
LIMIT $6;
