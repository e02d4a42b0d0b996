-- A timer's occurrences are numbered without gaps up to its own count, except for the oldest, which
-- retention removes; each fired one names a send that no other occurrence fired.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('timer', x.timer_id, 'n', x.n)::text AS row
FROM (
    SELECT t.tenant, t.timer_id, t.next_n AS n
    FROM timers t
    JOIN timer_occurrences o ON o.tenant = t.tenant AND o.timer_id = t.timer_id
    GROUP BY t.tenant, t.timer_id, t.next_n
    HAVING max(o.n) <> t.next_n - 1 OR max(o.n) - min(o.n) + 1 <> count(*)
    UNION ALL
    SELECT o.tenant, o.timer_id, o.n
    FROM timer_occurrences o
    WHERE (o.send_id IS NOT NULL) <> (o.fate IN ('fired', 'merged'))
    UNION ALL
    SELECT o.tenant, min(o.timer_id::text)::uuid, min(o.n)
    FROM timer_occurrences o
    WHERE o.fate = 'fired' AND o.send_id IS NOT NULL
    GROUP BY o.tenant, o.send_id
    HAVING count(*) > 1
) x
ORDER BY x.tenant, x.timer_id, x.n
LIMIT (SELECT b.rows_max FROM bound b)
