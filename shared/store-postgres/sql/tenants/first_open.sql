-- The first open send of a tenant from an id on. Index: sends_pkey.
SELECT s.send_id
FROM sends s
WHERE s.tenant = $1::integer AND s.send_id >= $2::uuid AND s.finished_at IS NULL
ORDER BY s.send_id
LIMIT 1
