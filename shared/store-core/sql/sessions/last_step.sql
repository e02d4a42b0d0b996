-- The number of a session's last step.
SELECT next_step - 1 FROM session_hot WHERE tenant = $1 AND session_id = $2;
