-- A page of sends after $2, by id. For each: whether it was created before $5; whether it may be
-- removed (it ended before $4, or its run is gone, and it was reported to any parent that waits for
-- it); whether it is that old; and its rounds.
SELECT s.tenant, s.session_id, s.send_id, s.first_step, s.created_at < $5 AS more,
       s.finished_at IS NOT NULL
       AND (s.reports_to IS NULL OR s.reported_at IS NOT NULL)
       AND CASE
               WHEN s.run_id IS NULL THEN s.finished_at < $4
               ELSE NOT EXISTS (SELECT 1 FROM runs r
                                WHERE r.tenant = s.tenant AND r.run_id = s.run_id)
           END AS may_go,
       s.created_at < $4 AND (s.finished_at IS NULL OR s.finished_at < $4) AS is_old,
       s.rounds
FROM sends s
WHERE s.tenant = $1 AND s.send_id > $2
ORDER BY s.send_id
LIMIT $3;
