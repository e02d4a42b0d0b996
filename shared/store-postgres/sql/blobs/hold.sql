-- Holds those of these blobs that are stored for an owner, and restarts their grace period.
-- Index: the primary key.
WITH
    b AS (
        UPDATE blobs SET used_at = (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
        WHERE tenant = $2::integer AND sha256 = ANY ($3::bytea[]) AND state = 1
        RETURNING tenant, sha256, generation, state, media_type, bytes, created_at, used_at
    ),
    h AS (
        INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
        SELECT b.tenant, b.sha256, $4::smallint, $5::uuid, b.used_at FROM b
        ON CONFLICT (tenant, sha256, kind, owner) DO UPDATE SET held_at = excluded.held_at
    )
SELECT tenant, sha256, generation, state, media_type, bytes, created_at FROM b
