-- Running sends that nobody works on: their owner ended before $2 or is unknown; or they were
-- released, and a worker of their pool was idle for longer than the bound. A send during which
-- workers crashed waits for a worker that has no other such send.
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)),
                   'owner', 'bot_' || lower(hex(h.owner_boot)), 'ready_since', h.ready_since)
FROM sends s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
LEFT JOIN boots b ON b.boot_id = h.owner_boot
WHERE s.finished_at IS NULL AND s.status = 'running'
  AND CASE
      WHEN h.owner_boot IS NOT NULL
          THEN coalesce({least}(coalesce(b.dead_at, b.lease_until), b.lease_until) < $2, 1)
      WHEN h.ready_since IS NULL THEN 1
      ELSE s.crashes = 0
          AND EXISTS (SELECT 1 FROM boots w
                      WHERE w.role = 'worker' AND w.concurrency > 0 AND w.pool = h.pool
                        AND w.dead_at IS NULL AND w.in_flight = 0
                        AND $4 BETWEEN w.lease_until - w.lease_ms AND w.lease_until
                        AND {greatest}(h.ready_since, w.started_at,
                                coalesce((SELECT max(t.at) FROM steps t
                                          WHERE t.tenant = s.tenant
                                            AND t.session_id = s.session_id), 0))
                            < w.lease_until - w.lease_ms - ($4 - $2))
  END
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;
