-- Removes one entry.
DELETE FROM list_entries WHERE tenant = $1 AND list = $2 AND id = $3;
