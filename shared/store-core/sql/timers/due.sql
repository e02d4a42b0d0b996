-- Timers that are due at $1, oldest first, at most $2 behind the first $3, by timers_due; with the status of the last
-- send of each. Locked: those that another scheduler fires are left to it.
SELECT {t.timer},
       (SELECT s.status FROM sends s WHERE s.tenant = t.tenant AND s.send_id = t.last_send) AS last_status
FROM timers t
WHERE t.fire_at <= $1
ORDER BY t.fire_at, t.tenant, t.timer_id
LIMIT $2 OFFSET $3
{lock_free};
