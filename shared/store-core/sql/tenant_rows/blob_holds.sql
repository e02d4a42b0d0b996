-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM blob_holds WHERE (tenant, sha256, kind, owner) IN (
    SELECT tenant, sha256, kind, owner FROM blob_holds WHERE tenant = $1 LIMIT $2
);
