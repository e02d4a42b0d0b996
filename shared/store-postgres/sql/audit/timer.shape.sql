-- A timer's times match its status.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('timer', t.timer_id, 'status', t.status)::text AS row
FROM timers t
WHERE (t.fire_at IS NOT NULL) <> (t.status = 'armed')
   OR (t.due_at IS NULL) <> (t.status IN ('done', 'cancelled', 'dead'))
   OR (t.ended_at IS NOT NULL) <> (t.status IN ('done', 'cancelled', 'dead'))
ORDER BY t.tenant, t.timer_id
LIMIT (SELECT b.rows_max FROM bound b)
