-- Begins an attempt of a delivery, which is due again at $4.
UPDATE webhook_deliveries SET attempts = attempts + 1, tried = tried + 1, due_at = $4
WHERE tenant = $1 AND webhook_id = $2 AND event_id = $3;
