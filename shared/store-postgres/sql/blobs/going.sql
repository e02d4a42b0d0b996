-- The marked blobs after ($1, $2) up to ($3, $4). Index: the primary key.
SELECT tenant, sha256, generation, state, media_type, bytes, created_at FROM blobs
WHERE (tenant, sha256) > ($1::integer, $2::bytea)
  AND (tenant, sha256) <= ($3::integer, $4::bytea)
  AND state = 2
ORDER BY tenant, sha256
