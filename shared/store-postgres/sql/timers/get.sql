-- Reads timers by id.
-- Index: timers_pkey.
SELECT
    i.ord, t.tenant, t.timer_id, t.target, t.rule, t.status, t.next_n, t.due_at, t.fire_at, t.failures, t.failure,
    t.last_send, t.last_fired_at, t.ended_at, t.created_at, t.updated_at
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, timer_id, ord)
JOIN timers t ON t.tenant = i.tenant AND t.timer_id = i.timer_id
