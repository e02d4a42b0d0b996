-- Removes an event that is on its way.
DELETE FROM webhook_events WHERE tenant = $1 AND source = $2 AND n = $3;
