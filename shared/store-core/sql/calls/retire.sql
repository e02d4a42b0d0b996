-- Removes the calls of a send: the key range from $2 up to, but not including, $3.
DELETE FROM tool_calls WHERE tenant = $1 AND call_id >= $2 AND call_id < $3;
