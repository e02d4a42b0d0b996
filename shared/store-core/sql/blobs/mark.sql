-- Marks a blob that nothing holds. Index: the primary keys.
UPDATE blobs SET state = 2
WHERE tenant = $1 AND sha256 = $2 AND state <> 2 AND used_at < $3
  AND NOT EXISTS (
      SELECT 1 FROM blob_holds h WHERE h.tenant = blobs.tenant AND h.sha256 = blobs.sha256
  );
