-- Every occurrence of a timer.
SELECT o.tenant, o.timer_id, {o.occurrence}
FROM timer_occurrences o
ORDER BY o.tenant, o.timer_id, o.n
