-- The boots that had not ended at $1.
SELECT {boot}
FROM boots
WHERE coalesce(dead_at, lease_until) >= $1
ORDER BY boot_id;
