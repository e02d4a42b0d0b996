-- Gives the place of the send $2 back, by the primary key.
DELETE FROM open_sends WHERE tenant = $1 AND send_id = $2;
