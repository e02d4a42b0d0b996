-- A session without an owner is ready exactly if it has work to do. While a send waits it may be
-- either: it becomes ready once what the send waits for has arrived.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', h.session_id, 'ready_since', h.ready_since,
    'running', count(*) FILTER (WHERE s.status = 'running'),
    'queued', count(*) FILTER (WHERE s.status = 'queued')
)::text AS row
FROM session_hot h
LEFT JOIN sends s
    ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.finished_at IS NULL
    AND s.position IS NOT NULL
WHERE h.owner_boot IS NULL
GROUP BY h.tenant, h.session_id, h.ready_since
HAVING count(*) FILTER (WHERE s.status = 'waiting') = 0
   AND (h.ready_since IS NOT NULL) <> (count(s.send_id) > 0)
ORDER BY h.tenant, h.session_id
LIMIT (SELECT b.rows_max FROM bound b)
