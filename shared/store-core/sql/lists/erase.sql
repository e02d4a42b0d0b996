-- Removes a list and everything that belongs to it.
DELETE FROM list_writes WHERE tenant = $1 AND list = $2;
DELETE FROM list_entries WHERE tenant = $1 AND list = $2;
DELETE FROM lists WHERE tenant = $1 AND list = $2;
