-- Declares a boot dead; the first to do so sets the time.
UPDATE boots SET dead_at = coalesce(dead_at, $2) WHERE boot_id = $1;
