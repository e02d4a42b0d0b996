-- The end of the lease of a boot that is not dead.
SELECT lease_until FROM boots WHERE boot_id = $1 AND dead_at IS NULL;
