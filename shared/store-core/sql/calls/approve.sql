-- A person permits a call: it is the worker's to run.
UPDATE tool_calls SET approval = 'given', waits_on = NULL, deadline_at = NULL
WHERE tenant = $1 AND call_id = $2;
