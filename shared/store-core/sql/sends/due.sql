-- Sends whose alarm is due at $1, oldest first, at most $2 after the first $3, by sends_alarm.
SELECT {send}
FROM sends
WHERE alarm_at <= $1
ORDER BY alarm_at, send_id
LIMIT $2 OFFSET $3;
