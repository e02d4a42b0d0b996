-- The words of a namespace's entries, from $2 up to $3, that have not expired, at most $5.
-- Index: memories_namespace.
SELECT m.memory_id, m.words, m.updated_at
FROM memories m
WHERE m.tenant = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
  AND (m.expires_at IS NULL OR m.expires_at > $4::bigint)
LIMIT $5::bigint
