-- Reads the leases of boots that are not dead.
-- Index: boots_pkey.
SELECT b.boot_id, b.lease_until
FROM boots b
WHERE b.boot_id = ANY ($1::uuid[]) AND b.dead_at IS NULL
