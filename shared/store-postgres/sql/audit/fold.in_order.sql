-- Neither folds of one level nor shown folds overlap, and no fold ends between a call and its
-- results.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('session', v.session_id, 'fold', v.n, 'with', v.other)::text AS row
FROM (
    SELECT f.tenant, f.session_id, f.n, o.n AS other
    FROM folds f
    JOIN folds o
        ON o.tenant = f.tenant AND o.session_id = f.session_id AND o.n > f.n
        AND o.from_seq <= f.to_seq AND o.to_seq >= f.from_seq
        AND (o.level = f.level OR (f.covered_by IS NULL AND o.covered_by IS NULL))
    UNION ALL
    SELECT f.tenant, f.session_id, f.n, NULL
    FROM folds f
    JOIN messages m
        ON m.tenant = f.tenant AND m.session_id = f.session_id AND m.seq = f.to_seq + 1
        AND m.asked_at_seq <= f.to_seq
) v
ORDER BY v.tenant, v.session_id, v.n
LIMIT (SELECT b.rows_max FROM bound b)
