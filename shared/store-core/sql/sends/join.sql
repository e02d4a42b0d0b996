-- Replaces the input of a send that has not started.
UPDATE sends SET input = $3 WHERE tenant = $1 AND send_id = $2;
