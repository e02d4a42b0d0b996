-- When the next alarm is due, by sends_alarm.
SELECT min(alarm_at) FROM sends WHERE alarm_at IS NOT NULL;
