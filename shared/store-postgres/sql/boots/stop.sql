-- Ends a boot's life; what it still owns can be claimed at once. A dead boot stays as it is.
-- Index: boots_pkey.
UPDATE boots b SET dead_at = c.now, lease_until = c.now
FROM (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
) c
WHERE b.boot_id = $2::uuid AND b.dead_at IS NULL
