-- The holds of a blob.
SELECT kind, owner FROM blob_holds WHERE tenant = $1 AND sha256 = $2 ORDER BY kind, owner;
