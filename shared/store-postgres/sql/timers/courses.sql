-- Every occurrence, with what the schedule of its timer is computed from, by timer and in order.
-- Index: timer_occurrences_pkey, timers_pkey.
SELECT
    o.tenant, o.timer_id, t.rule, t.created_at, {o.occurrence}
FROM timer_occurrences o
JOIN timers t ON t.tenant = o.tenant AND t.timer_id = o.timer_id
ORDER BY o.tenant, o.timer_id, o.n
