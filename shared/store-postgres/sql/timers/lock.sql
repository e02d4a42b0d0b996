-- Reads timers by id and locks them, in their order.
-- Index: timers_pkey.
SELECT
    t.tenant, t.timer_id, t.target, t.rule, t.status, t.next_n, t.due_at, t.fire_at, t.failures, t.failure,
    t.last_send, t.last_fired_at, t.ended_at, t.created_at, t.updated_at
FROM (
    SELECT DISTINCT i.tenant, i.timer_id
    FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, timer_id)
) i
JOIN timers t ON t.tenant = i.tenant AND t.timer_id = i.timer_id
ORDER BY t.tenant, t.timer_id
FOR UPDATE OF t
