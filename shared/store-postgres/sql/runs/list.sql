-- Reads a page of a tenant's runs, newest first.
-- Index: runs_pkey backwards; runs_session backwards for one session.
SELECT
    0::bigint AS ord, {r.run}
FROM runs r
WHERE r.tenant = $1::integer
  AND ($2::uuid IS NULL OR r.session_id = $2::uuid)
  AND ($3::text IS NULL OR r.status = $3::text)
  AND ($4::uuid IS NULL OR r.run_id < $4::uuid)
ORDER BY r.run_id DESC
LIMIT $5::bigint
