-- Steps of a send after its final one, except folds made while its session was at rest; and
-- messages that neither the final step nor an earlier step of the send wrote. Copied messages, of
-- epoch 0, have no step. The step that wrote a message is the last one whose messages begin at or
-- before it.
WITH final_steps AS MATERIALIZED (
    SELECT tenant, session_id, send_id, min(n) AS n
    FROM steps WHERE kind = 'finished'
    GROUP BY tenant, session_id, send_id
), written AS MATERIALIZED (
    SELECT tenant, session_id, send_id, n, CAST(refs ->> 'first_seq' AS INTEGER) AS first,
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
                   'send', 'snd_' || lower(hex(send_id)), kind, number)
FROM (
    SELECT s.tenant, s.session_id, s.send_id, 'step' AS kind, s.n AS number
    FROM steps s
    JOIN final_steps f ON f.tenant = s.tenant AND f.session_id = s.session_id
                      AND f.send_id = s.send_id AND s.n > f.n
    WHERE s.kind <> 'folded'
    UNION ALL
    SELECT m.tenant, m.session_id, m.send_id, 'seq', m.seq
    FROM placed m
    JOIN final_steps f ON f.tenant = m.tenant AND f.session_id = m.session_id AND f.send_id = m.send_id
    LEFT JOIN written w ON w.n = m.n AND w.session_id = m.session_id AND w.tenant = m.tenant
                       AND w.send_id = m.send_id AND m.seq < w.end_seq AND w.n <= f.n
    WHERE m.epoch > 0 AND w.n IS NULL
) found
ORDER BY tenant, session_id, number
LIMIT $1;
