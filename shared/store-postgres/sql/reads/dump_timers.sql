-- Every timer.
SELECT
    0::bigint AS ord, t.tenant, t.timer_id, t.target, t.rule, t.status, t.next_n, t.due_at, t.fire_at, t.failures, t.failure,
    t.last_send, t.last_fired_at, t.ended_at, t.created_at, t.updated_at
FROM timers t
ORDER BY t.tenant, t.timer_id
