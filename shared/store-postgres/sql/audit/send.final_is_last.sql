-- Nothing of a send comes after its final step: no step with a higher number, except folds made
-- while its session was at rest, and no message that neither this step nor an earlier one wrote.
-- Copied messages, of epoch 0, have no step.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
final AS MATERIALIZED (
    SELECT t.tenant, t.session_id, t.send_id, min(t.n) AS n
    FROM steps t WHERE t.kind = 'finished'
    GROUP BY t.tenant, t.session_id, t.send_id
),
wrote AS MATERIALIZED (
    SELECT
        f.tenant, f.session_id, f.send_id,
        (t.refs::json ->> 'first_seq')::bigint AS first_seq,
        (t.refs::json ->> 'messages')::bigint AS messages
    FROM final f
    JOIN steps t
        ON t.tenant = f.tenant AND t.session_id = f.session_id AND t.send_id = f.send_id
        AND t.n <= f.n
    WHERE t.refs LIKE '%"first_seq"%'
)
SELECT v.row FROM (
    SELECT
        t.tenant, t.session_id, t.n,
        json_build_object('session', t.session_id, 'send', t.send_id, 'step', t.n)::text AS row
    FROM final f
    JOIN steps t
        ON t.tenant = f.tenant AND t.session_id = f.session_id AND t.send_id = f.send_id
        AND t.n > f.n AND t.kind <> 'folded'
    UNION ALL
    SELECT
        m.tenant, m.session_id, m.seq,
        json_build_object('session', m.session_id, 'send', m.send_id, 'seq', m.seq)::text
    FROM final f
    JOIN messages m
        ON m.tenant = f.tenant AND m.session_id = f.session_id AND m.send_id = f.send_id
        AND m.epoch > 0
    LEFT JOIN wrote w
        ON w.tenant = m.tenant AND w.session_id = m.session_id AND w.send_id = m.send_id
        AND m.seq >= w.first_seq AND m.seq < w.first_seq + w.messages
    WHERE w.send_id IS NULL
) v
ORDER BY v.tenant, v.session_id, v.n
LIMIT (SELECT b.rows_max FROM bound b)
