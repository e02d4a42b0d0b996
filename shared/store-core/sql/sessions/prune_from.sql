-- Where a transcript begins, and where the messages of the active send, which are its last ones,
-- begin.
SELECT c.first_seq,
       (SELECT 1 + coalesce((SELECT m.seq FROM messages m
                             WHERE m.tenant = s.tenant AND m.session_id = s.session_id
                               AND m.send_id <> s.send_id
                             ORDER BY m.seq DESC LIMIT 1), c.first_seq - 1)
        FROM sends s
        WHERE s.tenant = c.tenant AND s.session_id = c.session_id AND s.finished_at IS NULL
          AND s.position IS NOT NULL AND s.status IN ('running', 'waiting')
        LIMIT 1) AS active_from
FROM sessions c
WHERE c.tenant = $1 AND c.session_id = $2;
