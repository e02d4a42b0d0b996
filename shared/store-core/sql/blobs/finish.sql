-- The bytes are there, unless the row went or was marked.
UPDATE blobs SET state = 1, used_at = $4
WHERE tenant = $1 AND sha256 = $2 AND generation = $3 AND state <> 2;
