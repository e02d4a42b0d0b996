-- Every occurrence of a timer.
SELECT o.tenant, o.timer_id, o.n, o.due_at, o.fate, o.send_id, o.fired_at
FROM timer_occurrences o
ORDER BY o.tenant, o.timer_id, o.n
