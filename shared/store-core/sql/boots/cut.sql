-- Cuts leases that no renewal at $1 can have given, because the clock was set back since, to what one
-- would give.
UPDATE boots SET lease_until = $1 + lease_ms
WHERE dead_at IS NULL AND lease_until > $1 + 2 * lease_ms;
