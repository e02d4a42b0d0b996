-- Begins a blob, or restarts its grace period if it exists and is not marked; a stored one is held
-- for the owner. The media type of stored bytes stays: others refer to them. Index: the primary key.
WITH
    b AS (
        INSERT INTO blobs AS o
            (tenant, sha256, generation, state, media_type, bytes, created_at, used_at)
        SELECT $2::integer, $3::bytea, $4::uuid, 0, $5::text, $6::bigint, n.now, n.now
        FROM (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)) AS n (now)
        ON CONFLICT (tenant, sha256) DO UPDATE SET
            used_at = CASE WHEN o.state <> 2 THEN excluded.used_at ELSE o.used_at END,
            media_type = CASE WHEN o.state = 0 THEN excluded.media_type ELSE o.media_type END
        RETURNING tenant, sha256, generation, state, media_type, bytes, created_at, used_at
    ),
    h AS (
        INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
        SELECT b.tenant, b.sha256, $7::smallint, $8::uuid, b.used_at FROM b
        WHERE b.state = 1 AND $7::smallint IS NOT NULL
        ON CONFLICT (tenant, sha256, kind, owner) DO UPDATE SET held_at = excluded.held_at
    )
SELECT tenant, sha256, generation, state, media_type, bytes, created_at FROM b
