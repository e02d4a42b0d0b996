-- The sessions that have a seat or wait for one.
SELECT t.tenant, t.session_id, t.waits_since
FROM seats t
WHERE t.waits_since IS NOT NULL
   OR EXISTS (SELECT 1 FROM sends s
              WHERE s.tenant = t.tenant AND s.session_id = t.session_id
                AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running')
ORDER BY t.tenant, t.session_id;
