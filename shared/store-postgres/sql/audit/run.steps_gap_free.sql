-- A run's advances are numbered from 1 without gaps up to its step.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('run', r.run_id, 'steps', count(t.n), 'step', r.step)::text AS row
FROM runs r
LEFT JOIN run_steps t ON t.tenant = r.tenant AND t.run_id = r.run_id
GROUP BY r.tenant, r.run_id, r.step
HAVING count(t.n) <> r.step OR coalesce(min(t.n), 1) <> 1 OR coalesce(max(t.n), 0) <> r.step
ORDER BY r.tenant, r.run_id
LIMIT (SELECT b.rows_max FROM bound b)
