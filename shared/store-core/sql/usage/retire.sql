-- Removes the usage rows of a send.
DELETE FROM usage_rows WHERE tenant = $1 AND send_id = $2;
