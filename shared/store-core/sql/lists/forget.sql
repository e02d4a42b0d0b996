-- Forgets the writes up to the n-th.
DELETE FROM list_writes WHERE tenant = $1 AND list = $2 AND n <= $3;
