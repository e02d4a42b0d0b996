-- Removes the messages before $3, the rows of the calls that they answer, and the projections that
-- begin with them.
DELETE FROM tool_calls WHERE tenant = $1 AND session_id = $2 AND call_id IN (
    SELECT m.tool_call_id FROM messages m
    WHERE m.tenant = $1 AND m.session_id = $2 AND m.seq < $3 AND m.tool_call_id IS NOT NULL
);
DELETE FROM messages WHERE tenant = $1 AND session_id = $2 AND seq < $3;
DELETE FROM projections WHERE tenant = $1 AND session_id = $2 AND from_seq < $3;
UPDATE sessions SET first_seq = $3 WHERE tenant = $1 AND session_id = $2;
UPDATE session_hot SET context_version = context_version + 1 WHERE tenant = $1 AND session_id = $2;
