-- Forgets what a send waited for, unless it is running again, by the primary keys.
DELETE FROM pause_waits
WHERE tenant = $1 AND send_id = $2
  AND NOT EXISTS (SELECT 1 FROM sends s
                  WHERE s.tenant = $1 AND s.send_id = $2 AND s.status = 'running');
