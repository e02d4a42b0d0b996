-- A page of a tenant's erasures, newest first; only of the namespace with the fingerprint $4, if
-- given.
-- Index: the primary key backwards.
SELECT e.erasure_id, e.fingerprint, e.deleted, e.erased_at, e.erased_by
FROM memory_erasures e
WHERE e.tenant = $1::integer
  AND ($2::uuid IS NULL OR e.erasure_id < $2::uuid)
  AND ($4::text IS NULL OR e.fingerprint = $4::text)
ORDER BY e.erasure_id DESC
LIMIT $3::bigint
