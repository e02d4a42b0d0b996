-- Removes the holds of blobs after ($2, $3) up to ($4, $5) whose owner does not exist any more, if
-- they were made before the grace period of $6 milliseconds. Index: the primary key.
DELETE FROM blob_holds h
WHERE (h.tenant, h.sha256) > ($2::integer, $3::bytea)
  AND (h.tenant, h.sha256) <= ($4::integer, $5::bytea)
  AND h.held_at < (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)) - $6::bigint
  AND NOT (h.kind = 0 AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = h.tenant AND s.session_id = h.owner
  ))
  AND NOT (h.kind = 1 AND EXISTS (
      SELECT FROM timers t WHERE t.tenant = h.tenant AND t.timer_id = h.owner
  ))
  AND NOT (h.kind = 2 AND EXISTS (
      SELECT FROM runs r WHERE r.tenant = h.tenant AND r.run_id = h.owner
  ))
