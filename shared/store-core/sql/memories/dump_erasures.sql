-- Every erasure.
SELECT tenant, fingerprint, deleted FROM memory_erasures ORDER BY tenant, fingerprint, deleted;
