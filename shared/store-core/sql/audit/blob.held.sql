-- Holds of blobs that are not stored: a blob is marked for removal only if nothing holds it.
SELECT json_object('tenant', h.tenant, 'sha256', lower(hex(h.sha256)),
                   'kind', h.kind, 'owner', lower(hex(h.owner)))
FROM blob_holds h
LEFT JOIN blobs b ON b.tenant = h.tenant AND b.sha256 = h.sha256 AND b.state = 1
WHERE b.sha256 IS NULL
ORDER BY h.tenant, h.sha256, h.kind, h.owner
LIMIT $1;
