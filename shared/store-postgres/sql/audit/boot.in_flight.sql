-- A worker that renewed its lease had in flight each session that it had owned for longer than the
-- bound. The time counts from the last step of the session's send, as both a new grant and progress
-- write a step.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
owned AS MATERIALIZED (
    SELECT h.tenant, h.session_id, h.owner_boot, s.send_id, s.started_at
    FROM sends s
    JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    WHERE s.finished_at IS NULL AND s.status = 'running' AND h.owner_boot IS NOT NULL
),
last AS MATERIALIZED (
    SELECT o.tenant, o.session_id, max(t.at) AS at
    FROM owned o
    JOIN steps t
        ON t.tenant = o.tenant AND t.session_id = o.session_id AND t.send_id = o.send_id
    GROUP BY o.tenant, o.session_id
)
SELECT json_build_object(
    'boot', w.boot_id, 'name', w.name, 'in_flight', w.in_flight, 'owned', count(*)
)::text AS row
FROM boots w
CROSS JOIN bound b
JOIN owned o ON o.owner_boot = w.boot_id
LEFT JOIN last l ON l.tenant = o.tenant AND l.session_id = o.session_id
WHERE w.role = 'worker' AND w.concurrency > 0 AND w.dead_at IS NULL
  -- A renewal in the future was made before the clock was set back.
  AND b.now BETWEEN w.lease_until - w.lease_ms AND w.lease_until
  AND greatest(o.started_at, l.at) + b.takeover_ms < w.lease_until - w.lease_ms
GROUP BY w.boot_id, w.name, w.in_flight
HAVING count(*) > w.in_flight
ORDER BY w.boot_id
LIMIT (SELECT b.rows_max FROM bound b)
