-- Erasures of the tenant $1, newest first, older than $2, at most $3; only of the namespace with
-- the fingerprint $4, if given.
SELECT erasure_id, fingerprint, deleted, erased_at, erased_by
FROM memory_erasures
WHERE tenant = $1 AND ($2 IS NULL OR erasure_id < $2) AND ($4 IS NULL OR fingerprint = $4)
ORDER BY erasure_id DESC
LIMIT $3;
