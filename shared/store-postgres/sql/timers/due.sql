-- Claims timers that are due at $1, oldest first; those that someone else has claimed are his; the
-- first $3 are passed over. With
-- the last send of each, while that one has not begun.
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
