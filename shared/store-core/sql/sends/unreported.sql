-- Final sends that a parent waits for and that were not reported, oldest first, at most $1 after
-- the first $2, by sends_unreported.
SELECT {send}
FROM sends
WHERE finished_at IS NOT NULL AND reports_to IS NOT NULL AND reported_at IS NULL
ORDER BY finished_at, send_id
LIMIT $1 OFFSET $2;
