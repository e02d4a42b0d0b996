-- The vectors that model $5 made of a namespace's newest entries, from $2 up to $3, that have not
-- expired, at most $6, without those that the extension compares: they were made before it was
-- installed.
-- Index: memories_namespace.
SELECT m.memory_id, m.embedding, m.updated_at
FROM memories m
WHERE m.tenant = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
  AND m.embedding_model = $5::text AND m.embedding_vector IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > $4::bigint)
ORDER BY m.memory_id DESC
LIMIT $6::bigint
