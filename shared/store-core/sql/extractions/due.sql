-- Extractions of a pool that are due by $2, at most $3, by extractions_due; locked, skipping those
-- that others have locked.
SELECT tenant, session_id, send_id, spec, attempts
FROM extractions
WHERE pool = $1 AND due_at <= $2
ORDER BY due_at
LIMIT $3
{lock_free};
