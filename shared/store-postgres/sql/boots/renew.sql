-- Extends a boot's lease unless it was declared dead, and reads the signals raised for its
-- sessions. Always one row or more; `renewed` is false for a dead or unknown boot.
-- Index: boots_pkey, session_hot_signals.
WITH renewed AS (
    UPDATE boots b SET
        lease_until = coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            + $3::bigint,
        in_flight = $4::integer
    WHERE b.boot_id = $2::uuid AND b.dead_at IS NULL
    RETURNING b.boot_id, b.lease_until - $3::bigint AS now
)
SELECT r.boot_id IS NOT NULL AS renewed, r.now, h.tenant, h.session_id, h.signals
FROM (VALUES (TRUE)) AS always (one)
LEFT JOIN renewed r ON TRUE
LEFT JOIN session_hot h ON h.owner_boot = $2::uuid AND h.signals <> 0
ORDER BY h.tenant, h.session_id
