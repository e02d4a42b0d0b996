-- Releases the place of the send $2, by the primary key.
DELETE FROM open_sends WHERE tenant = $1 AND send_id = $2;
