-- An extraction of a pool that nobody is working on, with the status of its send; locked.
-- Index: extractions_pkey.
SELECT e.tenant, e.session_id, e.send_id, e.spec, e.attempts, s.status
FROM extractions e
LEFT JOIN sends s
    ON s.tenant = e.tenant AND s.send_id = e.send_id
   AND EXISTS (SELECT FROM sessions c WHERE c.tenant = e.tenant AND c.session_id = e.session_id)
WHERE e.pool = $1::text AND e.tenant = $2::integer AND e.send_id = $3::uuid AND e.token IS NULL
FOR UPDATE OF e SKIP LOCKED
