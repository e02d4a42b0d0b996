-- Claims at most $3 entries that need a vector by $1, until $2.
-- Index: memories_unembedded.
WITH due AS MATERIALIZED (
    SELECT m.tenant, m.memory_id
    FROM memories m
    WHERE m.embed_at <= $1::bigint
      AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = m.tenant)
    ORDER BY m.embed_at
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
)
UPDATE memories d SET embed_at = $2::bigint
FROM due o
WHERE d.tenant = o.tenant AND d.memory_id = o.memory_id
RETURNING d.tenant, d.memory_id, d.text, d.source
