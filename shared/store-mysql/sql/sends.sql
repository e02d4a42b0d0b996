-- MySQL's own statements for sends.

-- name: sends/unreported
-- Final sends that were not reported, oldest first, by sends_unreported.
SELECT {send}
FROM sends
WHERE unreported_at IS NOT NULL
ORDER BY unreported_at, send_id
LIMIT $1 OFFSET $2;
