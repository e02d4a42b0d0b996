-- Each stored assistant message has the usage row of its round. Copies, of epoch 0, cost nothing.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', m.session_id, 'send', m.send_id, 'round', m.round, 'seq', m.seq
)::text AS row
FROM messages m
WHERE m.role = 'assistant' AND m.epoch > 0
  AND NOT EXISTS (
      SELECT FROM usage_rows u
      WHERE u.tenant = m.tenant AND u.send_id = m.send_id AND u.round = m.round
  )
  AND EXISTS (
      SELECT FROM sessions x WHERE x.tenant = m.tenant AND x.session_id = m.session_id
  )
  AND EXISTS (SELECT FROM sends s WHERE s.tenant = m.tenant AND s.send_id = m.send_id)
ORDER BY m.tenant, m.session_id, m.seq
LIMIT (SELECT b.rows_max FROM bound b)
