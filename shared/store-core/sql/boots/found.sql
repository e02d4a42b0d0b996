-- When the lease of a boot ends, or ended.
SELECT lease_until FROM boots WHERE boot_id = $1;
