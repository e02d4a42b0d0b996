-- Stores the result $4 for the calls of a send that wait for someone: the key range of the send $3.
UPDATE tool_calls SET result = $4, settled_at = $5, waits_on = NULL
WHERE tenant = $1 AND session_id = $2
  AND call_id >= 'call_' || lower(hex($3)) || '_' AND call_id < 'call_' || lower(hex($3)) || '`'
  AND waits_on IS NOT NULL;
