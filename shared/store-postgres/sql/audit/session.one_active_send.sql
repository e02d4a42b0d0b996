-- A session has at most one running or waiting send, and its hot row agrees.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', h.session_id, 'active', h.active,
    'running', count(*) FILTER (WHERE s.status = 'running'),
    'waiting', count(*) FILTER (WHERE s.status = 'waiting')
)::text AS row
FROM session_hot h
LEFT JOIN sends s
    ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.finished_at IS NULL
    AND s.status IN ('running', 'waiting')
GROUP BY h.tenant, h.session_id, h.active
HAVING count(s.send_id) > 1
    OR (h.active = 1) <> (count(*) FILTER (WHERE s.status = 'running') = 1)
    OR (h.active = 2) <> (count(*) FILTER (WHERE s.status = 'waiting') = 1)
ORDER BY h.tenant, h.session_id
LIMIT (SELECT b.rows_max FROM bound b)
