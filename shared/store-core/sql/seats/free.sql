-- Frees the seats of the tenant $1 whose sends have ended or were parked. By the primary key and
-- sends_open.
DELETE FROM seats
WHERE tenant = $1 AND waits_since IS NULL
  AND NOT EXISTS (SELECT 1 FROM sends s
                  WHERE s.tenant = seats.tenant AND s.session_id = seats.session_id
                    AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running');
