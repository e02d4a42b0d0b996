-- Everything that is kept for something.
SELECT h.tenant, h.sha256, h.kind, h.owner FROM blob_holds h ORDER BY h.tenant, h.sha256, h.kind, h.owner
