-- Forgets what sends waited for, unless they are running again or could not be woken.
-- Index: pause_waits_pkey, sends_pkey.
DELETE FROM pause_waits w
USING unnest($2::integer[], $3::uuid[]) AS e (tenant, send_id)
WHERE w.tenant = e.tenant AND w.send_id = e.send_id
  AND NOT EXISTS (
      SELECT FROM sends s
      WHERE s.tenant = e.tenant AND s.send_id = e.send_id
        AND (s.status = 'running' OR (
            s.status = 'waiting' AND s.waiting_on = 'retry'
            AND s.alarm_at > coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        ))
  )
