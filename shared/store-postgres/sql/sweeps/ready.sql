-- Reads ready sessions without a live owner, oldest first, including those that are ready since
-- later than now because the clock was set back. The live boots are read once, so that a session
-- with a live owner costs only its index entry and its row. Sessions that wait for a seat are left
-- out until they are called.
-- Index: session_hot_ready, seats_pkey.
SELECT h.tenant, h.session_id, h.ready_since, h.pool, h.priority
FROM session_hot h
WHERE h.ready_since IS NOT NULL
  AND (
      h.ready_since <= (
          SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
              - $2::bigint
      )
      OR h.ready_since > (
          SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
      )
  )
  AND (h.ready_since, h.tenant, h.session_id) > ($3::bigint, $4::integer, $5::uuid)
  AND (
      h.owner_boot IS NULL
      OR h.owner_boot <> ALL (ARRAY(
          SELECT b.boot_id FROM boots b
          WHERE b.dead_at IS NULL
            AND b.lease_until
                >= coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
      ))
  )
  AND NOT EXISTS (
      SELECT FROM seats w
      WHERE w.tenant = h.tenant AND w.session_id = h.session_id
        AND w.waits_since IS NOT NULL AND w.called_at IS NULL
  )
  AND ($6::text IS NULL OR h.pool = $6::text)
ORDER BY h.ready_since, h.tenant, h.session_id
LIMIT $7::bigint
