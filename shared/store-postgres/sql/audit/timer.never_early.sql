-- No occurrence gets its fate before it is due.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'timer', o.timer_id, 'n', o.n, 'due_at', o.due_at, 'fired_at', o.fired_at
)::text AS row
FROM timer_occurrences o
WHERE o.fired_at < o.due_at
ORDER BY o.tenant, o.timer_id, o.n
LIMIT (SELECT b.rows_max FROM bound b)
