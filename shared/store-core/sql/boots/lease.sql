-- Until when a boot that is not dead has its lease.
SELECT lease_until FROM boots WHERE boot_id = $1 AND dead_at IS NULL;
