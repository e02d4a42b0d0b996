-- A final run has no send that is under way.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('run', r.run_id, 'status', r.status, 'live', count(*))::text AS row
FROM sends s
JOIN runs r ON r.tenant = s.tenant AND r.run_id = s.run_id
WHERE s.run_id IS NOT NULL AND s.finished_at IS NULL AND r.finished_at IS NOT NULL
GROUP BY r.tenant, r.run_id, r.status
ORDER BY r.tenant, r.run_id
LIMIT (SELECT b.rows_max FROM bound b)
