-- Every erasure.
SELECT e.tenant, e.fingerprint, e.deleted
FROM memory_erasures e
ORDER BY e.tenant, e.fingerprint, e.deleted
