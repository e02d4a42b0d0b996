-- Every blob.
SELECT tenant, sha256, generation, state, media_type, bytes, created_at FROM blobs
ORDER BY tenant, sha256;
