-- MySQL's own statements for memories.

-- name: memories/save
-- Inserts an entry, without a vector; does nothing if its id exists.
INSERT INTO memories (tenant, memory_id, namespace, text, metadata, source, words, created_at,
                      updated_at, embed_at, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $8, $8, $9 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM memories WHERE tenant = $1 AND memory_id = $2);

-- name: memories/holding
-- The words of $5 entries that the full-text index finds in a namespace, from $2 up to $3, for the
-- query $7, in the order in which it finds them.
SELECT memory_id, words, updated_at
FROM memories
WHERE MATCH (words) AGAINST ($7 IN BOOLEAN MODE)
  AND tenant = $1 AND namespace >= $2 AND namespace < $3
  AND (expires_at IS NULL OR expires_at > $4)
LIMIT $5;
