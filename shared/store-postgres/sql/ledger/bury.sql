-- Declares those owners of locked sessions dead whose leases have expired at $2: a concurrent
-- renewal either comes first and keeps everything, or finds the boot dead.
-- Index: boots_pkey.
WITH late AS MATERIALIZED (
    SELECT b.boot_id
    FROM boots b
    WHERE b.boot_id = ANY ($1::uuid[]) AND b.dead_at IS NULL AND b.lease_until < $2::bigint
    ORDER BY b.boot_id
    FOR UPDATE OF b
)
UPDATE boots b SET dead_at = $2::bigint FROM late l WHERE b.boot_id = l.boot_id
