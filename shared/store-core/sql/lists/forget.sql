-- Forgets which calls wrote to a list, up to the n-th write.
DELETE FROM list_writes WHERE tenant = $1 AND list = $2 AND n <= $3;
