-- Deletes a bounded number of boots that ended long ago and own nothing. Sessions that a boot owns
-- are ready, so the ready sessions show all owners.
-- Index: session_hot_ready.
DELETE FROM boots b
WHERE b.boot_id = ANY (ARRAY(
    SELECT o.boot_id FROM boots o
    WHERE coalesce(o.dead_at, o.lease_until)
        < coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $2::bigint
      AND o.boot_id <> ALL (ARRAY(
          SELECT h.owner_boot FROM session_hot h
          WHERE h.ready_since IS NOT NULL AND h.owner_boot IS NOT NULL
      ))
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
))
