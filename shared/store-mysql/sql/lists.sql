-- What MySQL says differently about the lists that agents keep.

-- name: lists/lock
-- Nobody else changes the list until the transaction ends, not even one that has no row yet.
INSERT INTO lists (tenant, list, next_id, version) VALUES ($1, $2, 1, 0)
ON DUPLICATE KEY UPDATE version = version;

-- name: lists/dump
-- Every list that was ever written; a lock that was followed by a refusal leaves an empty one.
SELECT tenant, list, next_id, version FROM lists WHERE version > 0 ORDER BY tenant, list;
