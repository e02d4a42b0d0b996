-- An entry that is about to change, locked.
SELECT memory_id, namespace, text, metadata, source, created_at, updated_at, expires_at
FROM memories
WHERE tenant = $1 AND memory_id = $2 AND (expires_at IS NULL OR expires_at > $3)
{lock};
