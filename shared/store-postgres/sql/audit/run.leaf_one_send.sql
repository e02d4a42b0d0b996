-- Each attempt of a run's leaf has one send.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'run', s.run_id, 'path', s.run_path, 'attempt', s.run_attempt, 'sends', count(*)
)::text AS row
FROM sends s
WHERE s.run_id IS NOT NULL
GROUP BY s.tenant, s.run_id, s.run_path, s.run_attempt
HAVING count(*) > 1
ORDER BY s.tenant, s.run_id, s.run_path, s.run_attempt
LIMIT (SELECT b.rows_max FROM bound b)
