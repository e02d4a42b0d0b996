-- Reads the tools of the workers that are alive or ended within `$2` milliseconds.
SELECT b.pool, b.tools
FROM boots b
CROSS JOIN (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
) c
WHERE b.role = 'worker' AND coalesce(b.dead_at, b.lease_until) + $2::bigint >= c.now
ORDER BY b.pool, b.boot_id
