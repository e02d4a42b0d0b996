-- Entries that have not expired, by their ids.
-- Index: the primary key.
SELECT
    m.memory_id, m.namespace, m.text, m.metadata, m.source, m.created_at, m.updated_at, m.expires_at
FROM memories m
WHERE m.tenant = $1::integer AND m.memory_id = ANY ($2::uuid[])
  AND (m.expires_at IS NULL OR m.expires_at > $3::bigint)
