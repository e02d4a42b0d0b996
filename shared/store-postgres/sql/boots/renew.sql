-- Extends a boot's lease unless it was declared dead, and reads the signals raised for its
-- sessions. There is always at least one row; `renewed` is false for a dead or unknown boot, `until`
-- is when its lease ended before, and none for an unknown one. Leases
-- of other boots that end later than any renewal by the present clock could make them are shortened
-- to what a renewal would grant: a live boot renews in time, and a dead one is detected although
-- the clock was set back.
-- Index: boots_pkey, session_hot_signals.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
renewed AS (
    UPDATE boots b SET
        lease_until = c.now + $3::bigint, lease_ms = $3::bigint, in_flight = $4::integer
    FROM clock c
    WHERE b.boot_id = $2::uuid AND b.dead_at IS NULL
    RETURNING b.boot_id
),
beyond AS MATERIALIZED (
    SELECT b.boot_id
    FROM boots b CROSS JOIN clock c
    WHERE b.boot_id <> $2::uuid AND b.dead_at IS NULL
      AND b.lease_until > c.now + 2 * b.lease_ms
    FOR UPDATE OF b SKIP LOCKED
),
cut AS (
    UPDATE boots b SET lease_until = c.now + b.lease_ms
    FROM beyond o CROSS JOIN clock c
    WHERE b.boot_id = o.boot_id
)
SELECT r.boot_id IS NOT NULL AS renewed, c.now, b.lease_until AS until,
       h.tenant, h.session_id, h.signals
FROM clock c
LEFT JOIN renewed r ON TRUE
LEFT JOIN boots b ON b.boot_id = $2::uuid
LEFT JOIN session_hot h ON h.owner_boot = $2::uuid AND h.signals <> 0
ORDER BY h.tenant, h.session_id
