-- Deletes at most $2 entries that have expired.
-- Index: memories_expires.
DELETE FROM memories d
USING (
    SELECT m.tenant, m.memory_id FROM memories m
    WHERE m.expires_at <= $1::bigint
    ORDER BY m.expires_at
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
) o
WHERE d.tenant = o.tenant AND d.memory_id = o.memory_id
