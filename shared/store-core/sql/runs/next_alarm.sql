-- When the next run is due behind $1, by runs_alarm.
SELECT min(alarm_at) FROM runs WHERE alarm_at > $1;
