-- Each stored assistant message has the usage row of its round, and each usage row belongs to a
-- send that reached its round. Copies, of epoch 0, cost nothing; the usage of old sends was removed
-- with them.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT v.row FROM (
    SELECT
        m.tenant, m.session_id, m.send_id, m.round,
        json_build_object(
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
    UNION ALL
    SELECT
        u.tenant, u.session_id, u.send_id, u.round,
        json_build_object(
            'session', u.session_id, 'send', u.send_id, 'round', u.round, 'rounds', s.rounds
        )::text
    FROM usage_rows u
    LEFT JOIN sends s
        ON s.tenant = u.tenant AND s.send_id = u.send_id AND s.session_id = u.session_id
    WHERE s.send_id IS NULL OR u.round > s.rounds
) v
ORDER BY v.tenant, v.session_id, v.send_id, v.round
LIMIT (SELECT b.rows_max FROM bound b)
