-- Entries that need a vector by $1, at most $2, by memories_unembedded; locked, skipping those that
-- others have locked.
SELECT tenant, memory_id, text, source
FROM memories
WHERE embed_at <= $1
ORDER BY embed_at
LIMIT $2
{lock_free};
