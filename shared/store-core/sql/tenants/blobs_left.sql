-- Blobs of the tenant $1 that are still there, with pieces of their bytes.
SELECT (SELECT count(*) FROM blobs WHERE tenant = $1)
     + (SELECT count(*) FROM blob_chunks WHERE tenant = $1) AS blobs;
