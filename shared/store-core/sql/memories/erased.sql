-- Records an erasure, and adds up the entries that its steps deleted.
INSERT INTO memory_erasures (tenant, erasure_id, fingerprint, deleted, erased_at, erased_by)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, erasure_id) DO UPDATE SET deleted = deleted + excluded.deleted, erased_at = excluded.erased_at;
