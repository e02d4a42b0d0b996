-- Removes what the rounds of a send used.
DELETE FROM usage_rows WHERE tenant = $1 AND send_id = $2;
