-- Shortens leases that end later than any renewal at $1 could make them, because the clock was set
-- back since, to what a renewal would grant.
UPDATE boots SET lease_until = $1 + lease_ms
WHERE dead_at IS NULL AND lease_until > $1 + 2 * lease_ms;
