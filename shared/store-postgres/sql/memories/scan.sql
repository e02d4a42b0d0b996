-- A namespace's entries, from $2 up to $3, that have not expired, at most $5. Their words are
-- included only if there are fewer than that: nobody reads the words of so many.
-- Index: memories_namespace.
SELECT
    m.memory_id, m.updated_at,
    CASE WHEN (
        SELECT count(*) FROM (
            SELECT FROM memories o
            WHERE o.tenant = $1::integer AND o.namespace >= $2::text AND o.namespace < $3::text
              AND (o.expires_at IS NULL OR o.expires_at > $4::bigint)
            LIMIT $5::bigint
        ) few
    ) < $5::bigint THEN m.words END AS words
FROM memories m
WHERE m.tenant = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
  AND (m.expires_at IS NULL OR m.expires_at > $4::bigint)
LIMIT $5::bigint
