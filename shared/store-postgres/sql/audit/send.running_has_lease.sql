-- A running send has a live owner. An owner that died may be missed for the bound; a send that was
-- given back is ready, and how long it has been so is not recorded.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', s.session_id, 'send', s.send_id, 'owner', h.owner_boot,
    'ended_at', least(o.dead_at, o.lease_until)
)::text AS row
FROM sends s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
CROSS JOIN bound b
LEFT JOIN boots o ON o.boot_id = h.owner_boot
WHERE s.status = 'running' AND h.owner_boot IS NOT NULL
  AND (o.boot_id IS NULL OR least(o.dead_at, o.lease_until) + b.takeover_ms < b.now)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT (SELECT b.rows_max FROM bound b)
