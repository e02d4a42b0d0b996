-- The calls of a round by their places: a range of the key from $3 up to before $4.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND session_id = $2 AND call_id >= $3 AND call_id < $4
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY place, call_id;
