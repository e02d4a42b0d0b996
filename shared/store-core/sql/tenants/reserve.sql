-- Takes a place for the send $2. Index: the primary key.
INSERT INTO open_sends (tenant, send_id, reserved_at) VALUES ($1, $2, $3);
