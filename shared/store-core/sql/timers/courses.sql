-- Every occurrence with what its timer's schedule is computed from, timer by timer in order.
SELECT o.tenant, o.timer_id, t.rule, t.created_at, {o.occurrence}
FROM timer_occurrences o
JOIN timers t ON t.tenant = o.tenant AND t.timer_id = o.timer_id
ORDER BY o.tenant, o.timer_id, o.n;
