-- A page of a tenant's entries that have not expired, newest first; only of a namespace, from $5 up
-- to $6, if given.
-- Index: the primary key backwards, or memories_namespace.
SELECT
    m.memory_id, m.namespace, m.text, m.metadata, m.source, m.created_at, m.updated_at, m.expires_at
FROM memories m
WHERE m.tenant = $1::integer
  AND ($2::uuid IS NULL OR m.memory_id < $2::uuid)
  AND (m.expires_at IS NULL OR m.expires_at > $3::bigint)
  AND ($5::text IS NULL OR m.namespace >= $5::text AND m.namespace < $6::text)
ORDER BY m.memory_id DESC
LIMIT $4::bigint
