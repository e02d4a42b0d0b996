-- Where a transcript begins, and where the messages of the active send, which are its last ones,
-- begin.
-- Index: the primary keys, sends_open; it reads what the active send wrote.
SELECT
    s.first_seq,
    (
        SELECT 1 + coalesce((
            SELECT m.seq FROM messages m
            WHERE m.tenant = d.tenant AND m.session_id = d.session_id AND m.send_id <> d.send_id
            ORDER BY m.seq DESC
            LIMIT 1
        ), s.first_seq - 1)
        FROM sends d
        WHERE d.tenant = s.tenant AND d.session_id = s.session_id
          AND d.finished_at IS NULL AND d.position IS NOT NULL
          AND d.status IN ('running', 'waiting')
        LIMIT 1
    ) AS active_from
FROM sessions s
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
