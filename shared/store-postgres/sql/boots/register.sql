-- Registers a boot. A repeat changes nothing.
INSERT INTO boots (boot_id, role, name, pool, concurrency, started_at, lease_until, lease_ms,
                   protocol, tools)
SELECT
    $2::uuid, $3::text, $4::text, $5::text, $6::integer, c.now, c.now + $7::bigint, $7::bigint,
    $8::integer, $9::text
FROM (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
) c
ON CONFLICT (boot_id) DO NOTHING
