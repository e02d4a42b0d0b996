-- Marks the bytes of a blob as stored, unless its row was removed or marked, and holds the blob for
-- the owner.
-- Index: the primary key.
WITH
    b AS (
        UPDATE blobs SET state = 1, used_at = (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
        WHERE tenant = $2::integer AND sha256 = $3::bytea AND generation = $4::uuid AND state <> 2
        RETURNING tenant, sha256, used_at
    ),
    h AS (
        INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
        SELECT b.tenant, b.sha256, $5::smallint, $6::uuid, b.used_at FROM b
        WHERE $5::smallint IS NOT NULL
        ON CONFLICT (tenant, sha256, kind, owner) DO UPDATE SET held_at = excluded.held_at
    )
SELECT count(*) AS stored FROM b
