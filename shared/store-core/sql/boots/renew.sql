-- Extends a lease. A boot that was declared dead matches no row.
UPDATE boots SET lease_until = $2, in_flight = $3, lease_ms = $4
WHERE boot_id = $1 AND dead_at IS NULL;
