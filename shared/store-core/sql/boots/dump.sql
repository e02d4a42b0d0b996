-- Every boot.
SELECT boot_id, role, name, pool, concurrency, in_flight, started_at, lease_until, lease_ms, dead_at
FROM boots
ORDER BY boot_id;
