-- Epochs never decrease along a transcript or a session's steps. Epoch 0 is no grant: an accept, a
-- cancel of a queued send, a copy.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', v.session_id, v.what, v.n, 'epoch', v.epoch, 'after', v.highest
)::text AS row
FROM (
    SELECT
        m.tenant, m.session_id, 'seq' AS what, m.seq AS n, m.epoch,
        max(m.epoch) OVER (PARTITION BY m.tenant, m.session_id ORDER BY m.seq) AS highest
    FROM messages m
    UNION ALL
    SELECT
        t.tenant, t.session_id, 'step', t.n, t.epoch,
        max(t.epoch) OVER (PARTITION BY t.tenant, t.session_id ORDER BY t.n)
    FROM steps t
) v
WHERE v.epoch <> 0 AND v.epoch < v.highest
ORDER BY v.tenant, v.session_id, v.what, v.n
LIMIT (SELECT b.rows_max FROM bound b)
