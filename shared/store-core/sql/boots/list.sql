-- The boots that had not ended at $1.
SELECT boot_id, role, name, pool, concurrency, in_flight, started_at, lease_until, lease_ms, dead_at
FROM boots
WHERE coalesce(dead_at, lease_until) >= $1
ORDER BY boot_id;
