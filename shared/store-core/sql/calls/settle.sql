-- Stores the result of a call that is not settled yet.
UPDATE tool_calls SET result = $3, settled_at = $4, waits_on = NULL
WHERE tenant = $1 AND call_id = $2 AND result IS NULL;
