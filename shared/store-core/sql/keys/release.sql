-- Releases the place of the send $3, by the primary key.
DELETE FROM key_sends WHERE tenant = $1 AND key_id = $2 AND send_id = $3;
