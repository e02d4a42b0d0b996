-- Holds of blobs that are not stored: a blob is marked for removal only if nothing holds it.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('tenant', h.tenant, 'sha256', encode(h.sha256, 'hex'),
                         'kind', h.kind, 'owner', h.owner)::text AS row
FROM blob_holds h
LEFT JOIN blobs b ON b.tenant = h.tenant AND b.sha256 = h.sha256 AND b.state = 1
WHERE b.sha256 IS NULL
ORDER BY h.tenant, h.sha256, h.kind, h.owner
LIMIT (SELECT b.rows_max FROM bound b)
