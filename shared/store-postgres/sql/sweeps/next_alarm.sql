-- Reads when the next alarm is due.
-- Index: sends_alarm.
SELECT s.alarm_at FROM sends s WHERE s.alarm_at IS NOT NULL ORDER BY s.alarm_at LIMIT 1
