-- Reads every boot in order.
SELECT
    b.boot_id, b.role, b.name, b.pool, b.concurrency, b.in_flight, b.started_at, b.lease_until, b.lease_ms,
    b.dead_at
FROM boots b
ORDER BY b.boot_id
