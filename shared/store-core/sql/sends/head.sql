-- The first open send that has a position, by sends_open.
SELECT {send}
FROM sends
WHERE tenant = $1 AND session_id = $2 AND finished_at IS NULL AND position IS NOT NULL
ORDER BY position
LIMIT 1;
