-- Entries of which a vector is to be made by $1, at most $2, by memories_unembedded; locked,
-- but for those that others have.
SELECT tenant, memory_id, text, source
FROM memories
WHERE embed_at <= $1
ORDER BY embed_at
LIMIT $2
{lock_free};
