-- Workers that own more sessions than they had in flight when they last renewed their lease,
-- counting only sessions that they had owned for longer than the bound. The time counts from the
-- last step of the session's send, as both a new grant and progress write a step.
SELECT json_object('boot', 'bot_' || lower(hex(boot_id)), 'name', name,
                   'in_flight', in_flight, 'owned', count(*))
FROM (
    SELECT w.boot_id, w.name, w.in_flight, w.lease_until - w.lease_ms - ($4 - $2) AS earlier,
           {greatest}(s.started_at,
               coalesce((SELECT max(t.at) FROM steps t
                         WHERE t.tenant = s.tenant AND t.session_id = s.session_id
                           AND t.send_id = s.send_id), s.started_at)) AS since
    FROM sends s
    JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    JOIN boots w ON w.boot_id = h.owner_boot
    WHERE s.finished_at IS NULL AND s.status = 'running' AND w.role = 'worker'
      AND w.concurrency > 0 AND w.dead_at IS NULL
      -- A renewal in the future was made before the clock was set back.
      AND $4 BETWEEN w.lease_until - w.lease_ms AND w.lease_until
) found
WHERE since < earlier
GROUP BY boot_id, name, in_flight
HAVING count(*) > in_flight
ORDER BY boot_id
LIMIT $1;
