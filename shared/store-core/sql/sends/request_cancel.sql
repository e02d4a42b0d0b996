-- Remembers that someone asked to end a send.
UPDATE sends SET cancel_requested = 1 WHERE tenant = $1 AND send_id = $2;
