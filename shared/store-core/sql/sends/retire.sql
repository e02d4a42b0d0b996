-- Removes a send.
DELETE FROM sends WHERE tenant = $1 AND send_id = $2;
