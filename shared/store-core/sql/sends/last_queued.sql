-- The last queued send that has a position, by sends_open.
SELECT {send}
FROM sends
WHERE tenant = $1 AND session_id = $2 AND finished_at IS NULL AND position IS NOT NULL
  AND status = 'queued'
ORDER BY position DESC
LIMIT 1;
