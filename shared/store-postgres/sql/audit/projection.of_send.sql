-- Each projection stands for exactly those messages of its send that no fold stands for, and the
-- send has ended.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('session', p.session_id, 'projection', p.from_seq)::text AS row
FROM projections p
JOIN sessions x ON x.tenant = p.tenant AND x.session_id = p.session_id
WHERE p.to_seq - p.from_seq + 1 <> (
          SELECT count(*) FROM messages m
          WHERE m.tenant = p.tenant AND m.session_id = p.session_id
            AND m.seq >= p.from_seq AND m.seq <= p.to_seq AND m.send_id = p.send_id
      )
   OR EXISTS (
          SELECT FROM messages m
          WHERE m.tenant = p.tenant AND m.session_id = p.session_id AND m.send_id = p.send_id
            AND (m.seq = p.to_seq + 1
                 OR m.seq = p.from_seq - 1
                    AND NOT EXISTS (
                        SELECT FROM folds f
                        WHERE f.tenant = p.tenant AND f.session_id = p.session_id
                          AND f.to_seq = m.seq
                    ))
      )
   OR EXISTS (
          SELECT FROM sends s
          WHERE s.tenant = p.tenant AND s.session_id = p.session_id AND s.send_id = p.send_id
            AND s.finished_at IS NULL
      )
ORDER BY p.tenant, p.session_id, p.from_seq
LIMIT (SELECT b.rows_max FROM bound b)
