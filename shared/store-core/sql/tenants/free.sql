-- Frees the places of the tenant $1 whose sends have ended, or do not exist although they were
-- reserved before $2. Both by the primary keys.
DELETE FROM open_sends
WHERE tenant = $1
  AND NOT EXISTS (SELECT 1 FROM sends s
                  WHERE s.tenant = open_sends.tenant AND s.send_id = open_sends.send_id
                    AND s.finished_at IS NULL)
  AND (reserved_at < $2
       OR EXISTS (SELECT 1 FROM sends s
                  WHERE s.tenant = open_sends.tenant AND s.send_id = open_sends.send_id));
