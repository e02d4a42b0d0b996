-- Timers whose occurrences have gaps or do not reach their count; and occurrences that share their
-- send with another one, that have a send although their fate does not allow it, or that lack one.
-- The oldest occurrences may have been removed.
SELECT json_object('timer', 'tmr_' || lower(hex(x.timer_id)), 'n', x.n)
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
    SELECT o.tenant, min(o.timer_id), min(o.n)
    FROM timer_occurrences o
    WHERE o.fate = 'fired' AND o.send_id IS NOT NULL
    GROUP BY o.tenant, o.send_id
    HAVING count(*) > 1
) x
ORDER BY x.tenant, x.timer_id, x.n
LIMIT $1;
