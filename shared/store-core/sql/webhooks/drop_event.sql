-- Removes an event whose deliveries have been queued.
DELETE FROM webhook_events WHERE tenant = $1 AND source = $2 AND n = $3;
