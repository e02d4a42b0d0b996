-- Frees the places of the key $2 whose sends have ended, or do not exist although they were
-- reserved before $3. Both by the primary keys.
DELETE FROM key_sends
WHERE tenant = $1 AND key_id = $2
  AND NOT EXISTS (SELECT 1 FROM sends s
                  WHERE s.tenant = key_sends.tenant AND s.send_id = key_sends.send_id
                    AND s.finished_at IS NULL)
  AND (reserved_at < $3
       OR EXISTS (SELECT 1 FROM sends s
                  WHERE s.tenant = key_sends.tenant AND s.send_id = key_sends.send_id));
