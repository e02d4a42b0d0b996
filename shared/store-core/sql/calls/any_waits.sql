-- Whether a call of a round waits for someone: the key range from $3 up to, but not including, $4.
SELECT EXISTS (
    SELECT 1 FROM tool_calls
    WHERE tenant = $1 AND session_id = $2 AND call_id >= $3 AND call_id < $4
      AND waits_on IS NOT NULL
);
