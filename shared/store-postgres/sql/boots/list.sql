-- Reads the boots that are alive or ended within `$2` milliseconds.
SELECT
    b.boot_id, b.role, b.name, b.pool, b.concurrency, b.in_flight, b.started_at, b.lease_until, b.lease_ms,
    b.dead_at
FROM boots b
CROSS JOIN (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
) c
WHERE coalesce(b.dead_at, b.lease_until) + $2::bigint >= c.now
ORDER BY b.boot_id
