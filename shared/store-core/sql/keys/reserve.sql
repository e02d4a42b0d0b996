-- Takes a place of the key $2 for the send $3. Index: the primary key.
INSERT INTO key_sends (tenant, key_id, send_id, reserved_at) VALUES ($1, $2, $3, $4);
