-- The calls that a list remembers.
SELECT call_id FROM list_writes WHERE tenant = $1 AND list = $2 ORDER BY call_id;
