-- Timers whose times do not match their status.
SELECT json_object('timer', 'tmr_' || lower(hex(t.timer_id)), 'status', t.status)
FROM timers t
WHERE (t.fire_at IS NOT NULL) <> (t.status = 'armed')
   OR (t.due_at IS NULL) <> (t.status IN ('done', 'cancelled', 'dead'))
   OR (t.ended_at IS NOT NULL) <> (t.status IN ('done', 'cancelled', 'dead'))
ORDER BY t.tenant, t.timer_id
LIMIT $1;
