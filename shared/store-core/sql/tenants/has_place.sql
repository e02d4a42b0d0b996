-- Whether the send $2 has a place, by the primary key.
SELECT EXISTS (SELECT 1 FROM open_sends WHERE tenant = $1 AND send_id = $2);
