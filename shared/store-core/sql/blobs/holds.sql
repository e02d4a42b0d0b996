-- Every hold of a blob.
SELECT tenant, sha256, kind, owner FROM blob_holds ORDER BY tenant, sha256, kind, owner;
