-- The words of the newest $5 entries that the full-text index finds in a namespace, from $2 up to
-- $3, for the query $6: in the order of the index, so that a query that matches half of a namespace
-- is not ranked. $7 is the query in MySQL's syntax.
-- CROSS JOIN keeps SQLite from reading the namespace first and probing the index once per entry,
-- which takes forty times as long.
SELECT m.memory_id, m.words, m.updated_at
FROM memory_words f
CROSS JOIN memories m ON m.n = f.rowid
WHERE f.memory_words MATCH $6 AND $7 IS NOT NULL
  AND m.tenant = $1 AND m.namespace >= $2 AND m.namespace < $3
  AND (m.expires_at IS NULL OR m.expires_at > $4)
ORDER BY f.rowid DESC
LIMIT $5;
