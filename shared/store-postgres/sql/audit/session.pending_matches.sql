-- The hot row's `pending` is the number of queued sends with a position.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', h.session_id, 'pending', h.pending, 'queued', count(s.send_id)
)::text AS row
FROM session_hot h
LEFT JOIN sends s
    ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.finished_at IS NULL
    AND s.position IS NOT NULL AND s.status = 'queued'
GROUP BY h.tenant, h.session_id, h.pending
HAVING count(s.send_id) <> h.pending
ORDER BY h.tenant, h.session_id
LIMIT (SELECT b.rows_max FROM bound b)
