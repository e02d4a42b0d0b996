-- Timers that are due at $1, oldest first, at most $2 behind the first $3, by timers_due; with the status of the last
-- send of each.
SELECT t.tenant, t.timer_id, t.target, t.rule, t.status, t.next_n, t.due_at, t.fire_at, t.failures,
       t.failure, t.last_send, t.last_fired_at, t.ended_at, t.created_at, t.updated_at,
       (SELECT s.status FROM sends s WHERE s.tenant = t.tenant AND s.send_id = t.last_send)
FROM timers t
WHERE t.fire_at <= $1
ORDER BY t.fire_at, t.tenant, t.timer_id
LIMIT $2 OFFSET $3;
