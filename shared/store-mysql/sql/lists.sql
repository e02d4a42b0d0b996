-- MySQL's own statements for the lists that agents keep.

-- name: lists/lock
-- Locks the list until the transaction ends, even if it has no row yet.
INSERT INTO lists (tenant, list, next_id, version) VALUES ($1, $2, 1, 0)
ON DUPLICATE KEY UPDATE version = version;

-- name: lists/dump
-- Every list that was ever written; a lock followed by a refusal leaves an empty one.
SELECT tenant, list, next_id, version FROM lists WHERE version > 0 ORDER BY tenant, list;
