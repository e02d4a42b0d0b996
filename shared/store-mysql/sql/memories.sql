-- What MySQL says differently about what agents remember.

-- name: memories/save
-- Enters an entry, without a vector; does nothing where its id is known.
INSERT INTO memories (tenant, memory_id, namespace, text, metadata, source, words, created_at,
                      updated_at, embed_at, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $8, $8, $9 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM memories WHERE tenant = $1 AND memory_id = $2);

-- name: memories/lock
-- An entry that is about to change, locked.
SELECT memory_id, namespace, text, metadata, source, created_at, updated_at, expires_at
FROM memories
WHERE tenant = $1 AND memory_id = $2 AND (expires_at IS NULL OR expires_at > $3)
FOR UPDATE;

-- name: memories/unembedded
-- Entries of which a vector is to be made by $1, at most $2, by memories_unembedded; locked.
SELECT tenant, memory_id, text, source
FROM memories
WHERE embed_at <= $1
ORDER BY embed_at
LIMIT $2
FOR UPDATE SKIP LOCKED;

-- name: memories/erase
-- Deletes at most $4 entries of a namespace, from $2 up to $3, by the primary key.
DELETE FROM memories
WHERE tenant = $1 AND namespace >= $2 AND namespace < $3
ORDER BY namespace, memory_id
LIMIT $4;

-- name: memories/erased
-- Records an erasure, and adds up the entries that went with its steps.
INSERT INTO memory_erasures (tenant, erasure_id, fingerprint, deleted, erased_at, erased_by)
VALUES ($1, $2, $3, $4, $5, $6)
ON DUPLICATE KEY UPDATE deleted = deleted + VALUES(deleted), erased_at = VALUES(erased_at);

-- name: memories/expire
-- Deletes at most $2 entries that expired before $1, by memories_expires, but not of tenants on hold.
DELETE FROM memories
WHERE expires_at <= $1
  AND NOT EXISTS (SELECT 1 FROM tenants t
                  WHERE t.tenant = memories.tenant AND t.retention LIKE '%"hold":true%')
ORDER BY expires_at LIMIT $2;

-- name: memories/holding
-- The words of $5 entries that the full-text index finds in a namespace, from $2 up to $3, by the
-- question $7, in the order in which it finds them.
SELECT memory_id, words, updated_at
FROM memories
WHERE MATCH (words) AGAINST ($7 IN BOOLEAN MODE)
  AND tenant = $1 AND namespace >= $2 AND namespace < $3
  AND (expires_at IS NULL OR expires_at > $4)
LIMIT $5;

-- name: memories/payer
-- Whether a send and its session are there to pay for something; they stay until the transaction ends.
SELECT s.send_id
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
WHERE s.tenant = $1 AND s.session_id = $2 AND s.send_id = $3
LOCK IN SHARE MODE;

-- name: memories/pay
-- Stores what vectors cost that no send pays for.
INSERT INTO memory_usage (tenant, call_id, model, "usage")
VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE model = model;
