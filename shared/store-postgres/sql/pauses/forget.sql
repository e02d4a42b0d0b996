-- Removes pauses that ended more than $2 milliseconds ago and for which no send waits. There are
-- few pauses.
-- Index: pause_waits_pause.
DELETE FROM pauses p
WHERE p.resumed_at < coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $2::bigint
  AND NOT EXISTS (
      SELECT FROM pause_waits w
      WHERE w.pause_tenant = p.tenant AND w.kind = p.kind AND w.name = p.name
  )
