-- Where a transcript begins, and where what the open send wrote does.
-- Index: the primary keys; it reads the transcript.
SELECT
    s.first_seq,
    (
        SELECT min(m.seq)
        FROM messages m
        JOIN sends d ON d.tenant = m.tenant AND d.send_id = m.send_id
        WHERE m.tenant = s.tenant AND m.session_id = s.session_id
          AND d.session_id = s.session_id AND d.status IN ('running', 'waiting')
    ) AS active_from
FROM sessions s
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
