-- Sets a send's next alarm.
UPDATE sends SET alarm_at = $3 WHERE tenant = $1 AND send_id = $2;
