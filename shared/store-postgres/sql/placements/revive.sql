-- Revives a boot with a new lease.
-- Index: boots_pkey.
UPDATE boots b SET dead_at = NULL, lease_until = c.now + $3::bigint, lease_ms = $3::bigint
FROM (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
) c
WHERE b.boot_id = $2::uuid
