-- What a call did to the list, if anything.
SELECT entry_id, evicted FROM list_writes WHERE tenant = $1 AND list = $2 AND call_id = $3;
