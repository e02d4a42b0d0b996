-- Extractions of a pool that are due, with the status of their sends; locked. One without a status
-- has lost its send or its session.
-- Index: extractions_due.
SELECT e.tenant, e.session_id, e.send_id, e.spec, e.attempts, s.status
FROM extractions e
LEFT JOIN sends s
    ON s.tenant = e.tenant AND s.send_id = e.send_id
   AND EXISTS (SELECT FROM sessions c WHERE c.tenant = e.tenant AND c.session_id = e.session_id)
WHERE e.pool = $1::text AND e.due_at <= $2::bigint
  AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = e.tenant)
ORDER BY e.due_at
LIMIT $3::bigint
FOR UPDATE OF e SKIP LOCKED
