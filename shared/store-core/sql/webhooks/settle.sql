-- Ends an attempt, if it is still the delivery's last one and no redelivery was requested since.
UPDATE webhook_deliveries SET status = $5, due_at = $6, answer = $7, error = $8, settled_at = $9
WHERE tenant = $1 AND webhook_id = $2 AND event_id = $3 AND attempts = $4 AND status = 'pending'
  AND tried > 0;
