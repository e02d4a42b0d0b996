-- Sets a send's next alarm, and its place: that of a delayed send is new.
UPDATE sends SET alarm_at = $3, position = $4 WHERE tenant = $1 AND send_id = $2;
