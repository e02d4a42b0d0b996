-- Whether a boot is known to be dead.
SELECT dead_at IS NOT NULL FROM boots WHERE boot_id = $1;
