-- Makes a delivery due at $4, with a fresh count of attempts.
UPDATE webhook_deliveries SET status = 'pending', due_at = $4, tried = 0, settled_at = NULL
WHERE tenant = $1 AND webhook_id = $2 AND event_id = $3;
