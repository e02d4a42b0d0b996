-- Positions in a session are unique and below next_position.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', s.session_id, 'position', s.position, 'sends', count(*),
    'next_position', h.next_position
)::text AS row
FROM sends s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
WHERE s.position IS NOT NULL
GROUP BY s.tenant, s.session_id, s.position, h.next_position
HAVING count(*) > 1 OR s.position >= h.next_position OR s.position < 1
ORDER BY s.tenant, s.session_id, s.position
LIMIT (SELECT b.rows_max FROM bound b)
