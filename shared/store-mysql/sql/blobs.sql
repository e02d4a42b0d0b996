-- What MySQL says differently about blobs.

-- name: blobs/begin
-- Begins a blob, or begins its grace anew if it is there and not marked. Assignments run from left to
-- right and do not change the state, which each of them reads.
INSERT INTO blobs (tenant, sha256, generation, state, media_type, bytes, created_at, used_at)
VALUES ($1, $2, $3, 0, $4, $5, $6, $6)
ON DUPLICATE KEY UPDATE
    used_at = CASE WHEN state <> 2 THEN VALUES(used_at) ELSE used_at END,
    media_type = CASE WHEN state <> 2 THEN VALUES(media_type) ELSE media_type END;

-- name: blobs/hold
-- What a blob is kept for.
INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE held_at = VALUES(held_at);

-- name: blobs/write
-- Writes a piece of a blob's bytes.
INSERT INTO blob_chunks (tenant, sha256, generation, n, data) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE data = VALUES(data);

-- name: blobs/drop
-- Removes the last pieces of a blob's bytes, at most $4. A table cannot be read in its own DELETE.
DELETE FROM blob_chunks WHERE tenant = $1 AND sha256 = $2 AND generation = $3
ORDER BY n DESC LIMIT $4;
