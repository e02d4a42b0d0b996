-- The tools of the workers that had not ended at $1.
SELECT pool, tools
FROM boots
WHERE role = 'worker' AND coalesce(dead_at, lease_until) >= $1
ORDER BY pool, boot_id;
