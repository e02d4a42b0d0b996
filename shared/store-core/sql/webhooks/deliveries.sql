-- Deliveries of an endpoint before $3, newest event first, at most $4, of the status $5, if given.
SELECT {delivery} FROM webhook_deliveries
WHERE tenant = $1 AND webhook_id = $2 AND event_id < $3 AND ($5 IS NULL OR status = $5)
ORDER BY event_id DESC
LIMIT $4;
