-- Somebody works on each running send: a live owner, or, after a release, a worker of its pool that
-- is idle. Either may take as long as the bound. A send during which workers crashed waits for a
-- worker that has no other such send.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
running AS MATERIALIZED (
    SELECT
        s.tenant, s.session_id, s.send_id, s.crashes, h.owner_boot, h.ready_since, h.pool,
        o.boot_id IS NOT NULL AS is_known, least(o.dead_at, o.lease_until) AS ended_at
    FROM sends s
    JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    LEFT JOIN boots o ON o.boot_id = h.owner_boot
    WHERE s.finished_at IS NULL AND s.status = 'running'
),
last AS MATERIALIZED (
    SELECT r.tenant, r.session_id, max(t.at) AS at
    FROM running r
    JOIN steps t ON t.tenant = r.tenant AND t.session_id = r.session_id
    GROUP BY r.tenant, r.session_id
),
idle AS MATERIALIZED (
    SELECT w.pool, w.started_at, w.lease_until - w.lease_ms AS renewed_at
    FROM boots w CROSS JOIN bound b
    WHERE w.role = 'worker' AND w.concurrency > 0 AND w.dead_at IS NULL
      AND b.now BETWEEN w.lease_until - w.lease_ms AND w.lease_until AND w.in_flight = 0
)
SELECT json_build_object(
    'session', r.session_id, 'send', r.send_id, 'owner', r.owner_boot, 'ready_since',
    r.ready_since, 'ended_at', r.ended_at
)::text AS row
FROM running r
CROSS JOIN bound b
LEFT JOIN last l ON l.tenant = r.tenant AND l.session_id = r.session_id
WHERE CASE
    WHEN r.owner_boot IS NOT NULL THEN NOT r.is_known OR r.ended_at + b.takeover_ms < b.now
    WHEN r.ready_since IS NULL THEN TRUE
    ELSE r.crashes = 0 AND EXISTS (
        SELECT FROM idle i
        WHERE i.pool = r.pool
          AND greatest(r.ready_since, l.at, i.started_at) + b.takeover_ms < i.renewed_at
    )
END
ORDER BY r.tenant, r.session_id, r.send_id
LIMIT (SELECT b.rows_max FROM bound b)
