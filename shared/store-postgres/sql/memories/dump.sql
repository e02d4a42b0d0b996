-- Every entry.
SELECT
    m.tenant, m.memory_id, m.namespace, m.text, m.metadata, m.source, m.created_at, m.updated_at,
    m.expires_at
FROM memories m
ORDER BY m.tenant, m.memory_id
