-- Ends a boot's life at once, unless it has ended.
UPDATE boots SET dead_at = $2, lease_until = $2 WHERE boot_id = $1 AND dead_at IS NULL;
