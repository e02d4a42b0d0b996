-- A page of blobs after ($1, $2). Index: the primary key.
SELECT tenant, sha256 FROM blobs
WHERE (tenant, sha256) > ($1::integer, $2::bytea)
  AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = blobs.tenant)
ORDER BY tenant, sha256 LIMIT $3::bigint
