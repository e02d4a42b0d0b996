-- Every entry.
SELECT tenant, memory_id, namespace, text, metadata, source, created_at, updated_at, expires_at
FROM memories
ORDER BY tenant, memory_id;
