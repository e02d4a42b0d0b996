-- Ended leaves of a run that no advance has taken into account, oldest first, by sends_run_ended.
SELECT {send}
FROM sends
WHERE tenant = $1 AND run_id = $2 AND finished_at IS NOT NULL AND reported_at IS NULL
ORDER BY finished_at, send_id
LIMIT $3;
