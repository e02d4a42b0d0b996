-- Timers that are due at $1, oldest first, at most $2 after the first $3, by timers_due; each with
-- the status of its last send. Locked, skipping those that another scheduler is firing.
SELECT {t.timer},
       (SELECT s.status FROM sends s WHERE s.tenant = t.tenant AND s.send_id = t.last_send) AS last_status
FROM timers t
WHERE t.fire_at <= $1
ORDER BY t.fire_at, t.tenant, t.timer_id
LIMIT $2 OFFSET $3
{lock_free};
