-- Whether a boot is known to have ended.
SELECT dead_at IS NOT NULL FROM boots WHERE boot_id = $1;
