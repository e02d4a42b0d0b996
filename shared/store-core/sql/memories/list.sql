-- A tenant's entries that have not expired by $3, newest first, older than $2, at most $4.
SELECT memory_id, namespace, text, metadata, source, created_at, updated_at, expires_at
FROM memories
WHERE tenant = $1 AND ($2 IS NULL OR memory_id < $2) AND (expires_at IS NULL OR expires_at > $3)
ORDER BY memory_id DESC
LIMIT $4;
