-- Marks the bytes of a blob as stored, unless its row was removed or marked.
UPDATE blobs SET state = 1, used_at = $4
WHERE tenant = $1 AND sha256 = $2 AND generation = $3 AND state <> 2;
