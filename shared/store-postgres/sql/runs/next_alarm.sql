-- When the next run is due.
-- Index: runs_alarm.
SELECT min(r.alarm_at) AS alarm_at FROM runs r WHERE r.alarm_at > $1::bigint
