-- Nothing was written or started under an epoch that was never granted, and a send changes to
-- another epoch only in a step that resumes or finishes it.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT v.row FROM (
    SELECT
        w.tenant, w.session_id, w.what, w.n::text AS n,
        json_build_object(
            'session', w.session_id, w.what, w.n, 'epoch', w.epoch, 'granted', h.epoch
        )::text AS row
    FROM (
        SELECT m.tenant, m.session_id, 'seq' AS what, m.seq AS n, m.epoch FROM messages m
        UNION ALL
        SELECT t.tenant, t.session_id, 'step', t.n, t.epoch FROM steps t
    ) w
    JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
    WHERE w.epoch > h.epoch OR w.epoch < 0
    UNION ALL
    SELECT
        c.tenant, c.session_id, 'call', c.call_id,
        json_build_object(
            'session', c.session_id, 'call', c.call_id, 'epoch', c.started_epoch, 'granted', h.epoch
        )::text
    FROM tool_calls c
    JOIN session_hot h ON h.tenant = c.tenant AND h.session_id = c.session_id
    WHERE c.started_epoch > h.epoch OR c.started_epoch < 1
    UNION ALL
    SELECT
        g.tenant, g.session_id, 'step', g.n::text,
        json_build_object(
            'session', g.session_id, 'step', g.n, 'epoch', g.epoch, 'before', g.before
        )::text
    FROM (
        SELECT
            t.tenant, t.session_id, t.n, t.kind, t.epoch,
            lag(t.epoch) OVER (PARTITION BY t.tenant, t.session_id, t.send_id ORDER BY t.n) AS before
        FROM steps t
        WHERE t.epoch > 0
    ) g
    WHERE g.epoch > g.before AND g.kind NOT IN ('resumed', 'finished')
) v
ORDER BY v.tenant, v.session_id, v.what, v.n
LIMIT (SELECT b.rows_max FROM bound b)
