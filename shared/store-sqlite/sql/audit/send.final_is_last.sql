-- Steps of a send behind its final one, and messages that neither it nor an earlier step of the
-- send wrote. Copied messages, of epoch 0, have no step.
WITH final_steps AS MATERIALIZED (
    SELECT tenant, session_id, send_id, min(n) AS n
    FROM steps WHERE kind = 'finished'
    GROUP BY tenant, session_id, send_id
), written AS MATERIALIZED (
    SELECT s.tenant, s.session_id, s.send_id,
           s.refs ->> 'first_seq' AS first, s.refs ->> 'first_seq' + s.refs ->> 'messages' AS until
    FROM steps s
    JOIN final_steps f ON f.tenant = s.tenant AND f.session_id = s.session_id
                      AND f.send_id = s.send_id AND s.n <= f.n
    WHERE s.refs ->> 'first_seq' IS NOT NULL
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), kind, number)
FROM (
    SELECT s.tenant, s.session_id, s.send_id, 'step' AS kind, s.n AS number
    FROM steps s
    JOIN final_steps f ON f.tenant = s.tenant AND f.session_id = s.session_id
                      AND f.send_id = s.send_id AND s.n > f.n
    UNION ALL
    SELECT m.tenant, m.session_id, m.send_id, 'seq', m.seq
    FROM messages m
    JOIN final_steps f ON f.tenant = m.tenant AND f.session_id = m.session_id AND f.send_id = m.send_id
    WHERE m.epoch > 0
      AND NOT EXISTS (SELECT 1 FROM written w
                      WHERE w.tenant = m.tenant AND w.session_id = m.session_id
                        AND w.send_id = m.send_id AND m.seq >= w.first AND m.seq < w.until)
)
ORDER BY tenant, session_id, number
LIMIT $1;
