-- When the next run after $1 is due, by runs_alarm.
SELECT min(alarm_at) FROM runs WHERE alarm_at > $1;
