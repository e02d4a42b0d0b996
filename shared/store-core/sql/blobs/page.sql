-- A page of blobs after ($1, $2). Index: the primary key.
SELECT tenant, sha256 FROM blobs
WHERE tenant > $1 OR (tenant = $1 AND sha256 > $2)
ORDER BY tenant, sha256 LIMIT $3;
