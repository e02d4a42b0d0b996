-- Projections that stand for messages of other sends, or not for all messages of their send that no
-- fold stands for; and projections of sends that have not ended.
SELECT json_object('session', 'ses_' || lower(hex(p.session_id)), 'projection', p.from_seq)
FROM projections p
JOIN sessions x ON x.tenant = p.tenant AND x.session_id = p.session_id
WHERE p.to_seq - p.from_seq + 1 <> (
          SELECT count(*) FROM messages m
          WHERE m.tenant = p.tenant AND m.session_id = p.session_id
            AND m.seq >= p.from_seq AND m.seq <= p.to_seq AND m.send_id = p.send_id
      )
   OR EXISTS (
          SELECT 1 FROM messages m
          WHERE m.tenant = p.tenant AND m.session_id = p.session_id AND m.send_id = p.send_id
            AND (m.seq = p.to_seq + 1
                 OR m.seq = p.from_seq - 1
                    AND NOT EXISTS (
                        SELECT 1 FROM folds f
                        WHERE f.tenant = p.tenant AND f.session_id = p.session_id
                          AND f.to_seq = m.seq
                    ))
      )
   OR EXISTS (
          SELECT 1 FROM sends s
          WHERE s.tenant = p.tenant AND s.session_id = p.session_id AND s.send_id = p.send_id
            AND s.finished_at IS NULL
      )
ORDER BY p.tenant, p.session_id, p.from_seq
LIMIT $1;
