-- Advances of a run in order.
SELECT n, at, boot, changes FROM run_steps
WHERE tenant = $1 AND run_id = $2 AND n > $3
ORDER BY n
LIMIT $4;
