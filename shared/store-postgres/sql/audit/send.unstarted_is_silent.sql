-- A send that never started has no messages.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('session', m.session_id, 'send', m.send_id, 'seq', m.seq)::text AS row
FROM messages m
JOIN sends s ON s.tenant = m.tenant AND s.send_id = m.send_id AND s.session_id = m.session_id
WHERE s.started_at IS NULL AND m.epoch > 0
ORDER BY m.tenant, m.session_id, m.seq
LIMIT (SELECT b.rows_max FROM bound b)
