-- A send needs no alarm any more.
UPDATE sends SET alarm_at = NULL WHERE tenant = $1 AND send_id = $2;
