-- Counts the blobs of the tenant $1 that are left, and the chunks of their bytes.
SELECT (SELECT count(*) FROM blobs WHERE tenant = $1)
     + (SELECT count(*) FROM blob_chunks WHERE tenant = $1) AS blobs;
