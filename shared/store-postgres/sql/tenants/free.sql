-- Frees the places of a tenant whose sends have ended, or do not exist although they were reserved
-- more than $3 milliseconds ago. Index: open_sends_pkey, sends_pkey.
DELETE FROM open_sends o
WHERE o.tenant = $2::integer
  AND NOT EXISTS (
      SELECT FROM sends s
      WHERE s.tenant = o.tenant AND s.send_id = o.send_id AND s.finished_at IS NULL
  )
  AND (
      o.reserved_at < coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $3::bigint
      OR EXISTS (SELECT FROM sends s WHERE s.tenant = o.tenant AND s.send_id = o.send_id)
  )
