-- Claims timers that are due at $1, oldest first, skipping the first $3 and those that another
-- transaction has claimed. Each comes with its last send, if that has not started yet.
-- Index: timers_due, sends_pkey.
WITH due AS MATERIALIZED (
    SELECT
        {t.timer}
    FROM timers t
    WHERE t.fire_at <= $1::bigint
      AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = t.tenant)
    ORDER BY t.fire_at, t.tenant, t.timer_id
    LIMIT $2::bigint OFFSET $3::bigint
    FOR UPDATE SKIP LOCKED
)
SELECT
    {t.timer},
    s.send_id AS queued
FROM due t
LEFT JOIN LATERAL (
    SELECT d.send_id FROM sends d
    WHERE d.tenant = t.tenant AND d.send_id = t.last_send AND d.status = 'queued'
    -- Keeps the planner from reading all sends at once.
    OFFSET 0
) s ON TRUE
ORDER BY t.fire_at, t.tenant, t.timer_id
