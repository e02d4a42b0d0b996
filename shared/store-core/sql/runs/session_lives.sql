-- Whether a session exists; it cannot be deleted until the transaction ends.
SELECT count(*) > 0 FROM sessions WHERE tenant = $1 AND session_id = $2 {lock};
