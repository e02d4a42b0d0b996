-- Holds a blob for an owner.
INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, sha256, kind, owner) DO UPDATE SET held_at = excluded.held_at;
