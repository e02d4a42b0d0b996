-- Every blob, with its holds.
SELECT b.tenant, b.sha256, b.generation, b.state, b.media_type, b.bytes, b.created_at,
    ARRAY(
        SELECT h.kind FROM blob_holds h WHERE h.tenant = b.tenant AND h.sha256 = b.sha256
        ORDER BY h.kind, h.owner
    ) AS kinds,
    ARRAY(
        SELECT h.owner FROM blob_holds h WHERE h.tenant = b.tenant AND h.sha256 = b.sha256
        ORDER BY h.kind, h.owner
    ) AS owners
FROM blobs b
ORDER BY b.tenant, b.sha256
