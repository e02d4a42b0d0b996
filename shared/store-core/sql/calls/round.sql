-- The calls of a round in the order of their places: the key range from $3 up to, but not
-- including, $4.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND session_id = $2 AND call_id >= $3 AND call_id < $4
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY place, call_id;
