-- Stores the result $5 for the calls of a round that are not settled yet: the key range from $3 up
-- to, but not including, $4.
UPDATE tool_calls SET result = $5, settled_at = $6, waits_on = NULL
WHERE tenant = $1 AND session_id = $2 AND call_id >= $3 AND call_id < $4 AND result IS NULL;
