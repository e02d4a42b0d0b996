-- Messages that no step of their send and epoch wrote; and steps whose messages are missing
-- although they were not pruned. Copied messages, of epoch 0, have no step; those of old sends lost
-- theirs. The step that wrote a message is the last one whose messages begin at or before it.
WITH written AS MATERIALIZED (
    SELECT tenant, session_id, send_id, epoch, n, CAST(refs ->> 'first_seq' AS INTEGER) AS first,
           CAST(refs ->> 'first_seq' AS INTEGER) + CAST(refs ->> 'messages' AS INTEGER) AS end_seq
    FROM steps
    WHERE refs ->> 'first_seq' IS NOT NULL
), placed AS MATERIALIZED (
    SELECT tenant, session_id, seq, send_id, epoch,
           max(n) OVER (PARTITION BY tenant, session_id ORDER BY seq, send_id IS NOT NULL) AS n
    FROM (
        SELECT tenant, session_id, seq, send_id, epoch, NULL AS n FROM messages
        UNION ALL
        SELECT tenant, session_id, first, NULL, NULL, n FROM written
    ) found
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), 'seq', seq, 'step', n)
FROM (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, NULL AS n
    FROM placed m
    JOIN sends s ON s.tenant = m.tenant AND s.send_id = m.send_id AND s.session_id = m.session_id
    LEFT JOIN written w ON w.n = m.n AND w.session_id = m.session_id AND w.tenant = m.tenant
                       AND w.send_id = m.send_id AND w.epoch = m.epoch AND m.seq < w.end_seq
    WHERE m.epoch > 0 AND w.n IS NULL
    UNION ALL
    SELECT w.tenant, w.session_id, w.send_id, w.first, w.n
    FROM written w
    JOIN sessions c ON c.tenant = w.tenant AND c.session_id = w.session_id
    WHERE (SELECT count(*) FROM messages m
           WHERE m.tenant = w.tenant AND m.session_id = w.session_id
             AND m.seq >= {greatest}(w.first, c.first_seq) AND m.seq < w.end_seq)
          < w.end_seq - {greatest}(w.first, c.first_seq)
) found
ORDER BY tenant, session_id, seq
LIMIT $1;
