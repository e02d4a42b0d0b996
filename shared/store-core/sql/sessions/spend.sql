-- What a session has spent, in the transaction of the step that spent it.
UPDATE session_hot SET spent = $3 WHERE tenant = $1 AND session_id = $2;
