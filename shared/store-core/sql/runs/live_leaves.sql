-- The sends of a run that are not final, among the open ones (sends_open).
SELECT send_id FROM sends
WHERE tenant = $1 AND run_id = $2 AND finished_at IS NULL
ORDER BY send_id;
