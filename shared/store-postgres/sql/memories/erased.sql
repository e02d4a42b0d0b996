-- Records an erasure, and adds up the entries that its steps deleted.
-- Index: the primary key.
INSERT INTO memory_erasures AS e (
    tenant, erasure_id, fingerprint, deleted, erased_at, erased_by
)
VALUES ($1::integer, $2::uuid, $3::text, $4::bigint, $5::bigint, $6::text)
ON CONFLICT (tenant, erasure_id)
DO UPDATE SET deleted = e.deleted + excluded.deleted, erased_at = excluded.erased_at
