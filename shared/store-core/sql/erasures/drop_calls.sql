-- Removes the first calls, at most $3, of a send whose call ids go from $1 up to, but not
-- including, $2.
DELETE FROM tool_calls WHERE rowid IN (
    SELECT rowid FROM tool_calls
    WHERE tenant = $4 AND call_id >= $1 AND call_id < $2
    ORDER BY call_id
    LIMIT $3
);
