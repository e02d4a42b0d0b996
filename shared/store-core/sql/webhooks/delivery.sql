-- A delivery, by its key.
SELECT {delivery} FROM webhook_deliveries WHERE tenant = $1 AND webhook_id = $2 AND event_id = $3;
