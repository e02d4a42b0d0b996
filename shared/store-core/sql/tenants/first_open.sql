-- The first open send of the tenant $1 from $2 on, by the primary key.
SELECT send_id FROM sends WHERE tenant = $1 AND send_id >= $2 AND finished_at IS NULL ORDER BY send_id LIMIT 1;
