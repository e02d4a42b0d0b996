-- A send has at most one final step, and exactly one once it is final.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', s.session_id, 'send', s.send_id, 'status', s.status, 'final_steps', count(t.n)
)::text AS row
FROM sends s
LEFT JOIN steps t
    ON t.tenant = s.tenant AND t.session_id = s.session_id AND t.send_id = s.send_id
    AND t.kind = 'finished'
GROUP BY s.tenant, s.session_id, s.send_id, s.status, s.finished_at
HAVING count(t.n) <> (s.finished_at IS NOT NULL)::integer
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT (SELECT b.rows_max FROM bound b)
