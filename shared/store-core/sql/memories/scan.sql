-- A namespace's entries, from $2 up to $3, that have not expired by $4, at most $5. Their words are
-- included only if there are fewer than that: nobody reads the words of so many. By
-- memories_namespace.
SELECT memory_id, updated_at,
       CASE WHEN (
           SELECT count(*) FROM (
               SELECT 1 AS one FROM memories
               WHERE tenant = $1 AND namespace >= $2 AND namespace < $3
                 AND (expires_at IS NULL OR expires_at > $4)
               LIMIT $5
           ) AS few
       ) < $5 THEN words END AS words
FROM memories
WHERE tenant = $1 AND namespace >= $2 AND namespace < $3 AND (expires_at IS NULL OR expires_at > $4)
LIMIT $5;
