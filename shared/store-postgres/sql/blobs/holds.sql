-- Every hold of a blob.
SELECT h.tenant, h.sha256, h.kind, h.owner FROM blob_holds h ORDER BY h.tenant, h.sha256, h.kind, h.owner
