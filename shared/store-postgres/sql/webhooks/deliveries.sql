-- Deliveries of an endpoint, newest event first.
-- Index: webhook_deliveries_pkey backwards.
SELECT {d.delivery} FROM webhook_deliveries d
WHERE d.tenant = $1::integer AND d.webhook_id = $2::uuid AND d.event_id < $3::uuid
  AND ($5::text IS NULL OR d.status = $5::text)
ORDER BY d.event_id DESC
LIMIT $4::bigint
