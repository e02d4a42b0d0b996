-- Marks the blobs after ($2, $3) up to ($4, $5) that nothing holds and that were last used before
-- the grace period of $6 milliseconds. Index: the primary keys.
UPDATE blobs b SET state = 2
WHERE (b.tenant, b.sha256) > ($2::integer, $3::bytea)
  AND (b.tenant, b.sha256) <= ($4::integer, $5::bytea)
  AND b.state <> 2 AND b.used_at < (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)) - $6::bigint
  AND NOT EXISTS (
      SELECT FROM blob_holds h WHERE h.tenant = b.tenant AND h.sha256 = b.sha256
  )
