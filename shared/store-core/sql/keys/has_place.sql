-- Whether the send $3 has a place of the key $2, by the primary key.
SELECT EXISTS (SELECT 1 FROM key_sends WHERE tenant = $1 AND key_id = $2 AND send_id = $3);
