-- Makes the alarm of a parked send due at $3, by its primary key. Its session is locked.
UPDATE sends SET alarm_at = $3
WHERE tenant = $1 AND send_id = $2 AND status = 'waiting' AND waiting_on = 'retry'
  AND (alarm_at IS NULL OR alarm_at > $3);
