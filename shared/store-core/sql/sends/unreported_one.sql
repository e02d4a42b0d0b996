-- A send, if it is final, a parent waits for it and it was not reported.
SELECT {send}
FROM sends
WHERE tenant = $1 AND send_id = $2
  AND finished_at IS NOT NULL AND reports_to IS NOT NULL AND reported_at IS NULL;
