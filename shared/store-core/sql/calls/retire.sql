-- Removes the calls of a send: a range of the key from $2 up to before $3.
DELETE FROM tool_calls WHERE tenant = $1 AND call_id >= $2 AND call_id < $3;
