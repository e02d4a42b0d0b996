-- Each message was written by a step of its send and epoch, and the messages that a step wrote
-- exist unless they were pruned. Copied messages, of epoch 0, have no step; those of old sends lost
-- theirs.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
written AS MATERIALIZED (
    SELECT t.tenant, t.session_id, t.n, t.send_id, t.epoch, s.seq
    FROM steps t
    CROSS JOIN LATERAL generate_series(
        (t.refs::json ->> 'first_seq')::bigint,
        (t.refs::json ->> 'first_seq')::bigint + (t.refs::json ->> 'messages')::bigint - 1
    ) AS s (seq)
    WHERE t.refs LIKE '%"first_seq"%'
)
SELECT v.row FROM (
    SELECT
        m.tenant, m.session_id, m.seq,
        json_build_object(
            'session', m.session_id, 'send', m.send_id, 'seq', m.seq, 'epoch', m.epoch
        )::text AS row
    FROM messages m
    JOIN sends d ON d.tenant = m.tenant AND d.send_id = m.send_id AND d.session_id = m.session_id
    LEFT JOIN written w
        ON w.tenant = m.tenant AND w.session_id = m.session_id AND w.seq = m.seq
        AND w.send_id = m.send_id AND w.epoch = m.epoch
    WHERE m.epoch > 0 AND w.n IS NULL
    UNION ALL
    SELECT
        w.tenant, w.session_id, w.seq,
        json_build_object(
            'session', w.session_id, 'send', w.send_id, 'seq', w.seq, 'step', w.n
        )::text
    FROM written w
    JOIN sessions s
        ON s.tenant = w.tenant AND s.session_id = w.session_id AND w.seq >= s.first_seq
    LEFT JOIN messages m
        ON m.tenant = w.tenant AND m.session_id = w.session_id AND m.seq = w.seq
    WHERE m.seq IS NULL
) v
ORDER BY v.tenant, v.session_id, v.seq
LIMIT (SELECT b.rows_max FROM bound b)
