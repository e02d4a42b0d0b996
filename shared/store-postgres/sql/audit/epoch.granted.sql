-- Nothing was written under an epoch that was never granted.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', v.session_id, v.what, v.n, 'epoch', v.epoch, 'granted', h.epoch
)::text AS row
FROM (
    SELECT m.tenant, m.session_id, 'seq' AS what, m.seq AS n, m.epoch FROM messages m
    UNION ALL
    SELECT t.tenant, t.session_id, 'step', t.n, t.epoch FROM steps t
) v
JOIN session_hot h ON h.tenant = v.tenant AND h.session_id = v.session_id
WHERE v.epoch > h.epoch OR v.epoch < 0
ORDER BY v.tenant, v.session_id, v.what, v.n
LIMIT (SELECT b.rows_max FROM bound b)
