-- Stores what a call has asked, $3, with the answer to its last question: the worker is to make it
-- again.
UPDATE tool_calls SET asked = $3, waits_on = NULL, deadline_at = NULL
WHERE tenant = $1 AND call_id = $2;
