-- Stores a person's approval of a call: the worker is to run it.
UPDATE tool_calls SET approval = 'given', waits_on = NULL, deadline_at = NULL
WHERE tenant = $1 AND call_id = $2;
