-- Occurrences that got their fate before they were due.
SELECT json_object('timer', 'tmr_' || lower(hex(o.timer_id)), 'n', o.n)
FROM timer_occurrences o
WHERE o.fired_at < o.due_at
ORDER BY o.tenant, o.timer_id, o.n
LIMIT $1;
