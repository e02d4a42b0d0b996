-- A blob in any state. Index: the primary key.
SELECT tenant, sha256, generation, state, media_type, bytes, created_at FROM blobs
WHERE tenant = $1 AND sha256 = $2;
