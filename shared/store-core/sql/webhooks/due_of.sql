-- Deliveries of an endpoint that are due by $3, oldest first, at most $4, by
-- webhook_deliveries_due; locked, skipping those that others have locked.
SELECT {delivery} FROM webhook_deliveries
WHERE tenant = $1 AND webhook_id = $2 AND due_at <= $3
ORDER BY due_at, event_id
LIMIT $4
{lock_free};
