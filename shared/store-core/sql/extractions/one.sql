-- An extraction of a pool that nobody is working on, locked.
SELECT tenant, session_id, send_id, spec, attempts
FROM extractions
WHERE pool = $1 AND tenant = $2 AND send_id = $3 AND token IS NULL
{lock_free};
