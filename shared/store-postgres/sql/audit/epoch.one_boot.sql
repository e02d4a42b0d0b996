-- The steps of one epoch come from one boot.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', t.session_id, 'epoch', t.epoch, 'boots', count(DISTINCT t.boot)
)::text AS row
FROM steps t
WHERE t.epoch > 0
GROUP BY t.tenant, t.session_id, t.epoch
HAVING count(DISTINCT t.boot) > 1
ORDER BY t.tenant, t.session_id, t.epoch
LIMIT (SELECT b.rows_max FROM bound b)
