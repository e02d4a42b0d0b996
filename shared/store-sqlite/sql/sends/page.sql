-- A page of sends behind $2, by id, and whether each may go: it ended before $4, whoever is to be told
-- of it was, and its run is gone.
SELECT s.tenant, s.session_id, s.send_id, s.first_step, s.created_at < $4,
       s.finished_at IS NOT NULL AND s.finished_at < $4
       AND (s.reports_to IS NULL OR s.reported_at IS NOT NULL)
       AND (s.run_id IS NULL OR NOT EXISTS (SELECT 1 FROM runs r
                                            WHERE r.tenant = s.tenant AND r.run_id = s.run_id))
FROM sends s
WHERE s.tenant = $1 AND s.send_id > $2
ORDER BY s.send_id
LIMIT $3;
