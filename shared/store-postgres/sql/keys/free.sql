-- Frees the places of a key whose sends have ended, or do not exist although they were reserved
-- more than $4 milliseconds ago. Index: key_sends_pkey, sends_pkey.
DELETE FROM key_sends o
WHERE o.tenant = $2::integer AND o.key_id = $3::uuid
  AND NOT EXISTS (
      SELECT FROM sends s
      WHERE s.tenant = o.tenant AND s.send_id = o.send_id AND s.finished_at IS NULL
  )
  AND (
      o.reserved_at < coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $4::bigint
      OR EXISTS (SELECT FROM sends s WHERE s.tenant = o.tenant AND s.send_id = o.send_id)
  )
