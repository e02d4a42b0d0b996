-- When the lease of a boot ends; no time if it is dead.
SELECT CASE WHEN dead_at IS NULL THEN lease_until END FROM boots WHERE boot_id = $1;
