-- Those of these blobs that are stored. Index: the primary key.
SELECT tenant, sha256, generation, state, media_type, bytes, created_at FROM blobs
WHERE tenant = $1::integer AND sha256 = ANY ($2::bytea[]) AND state = 1
