-- Nobody else changes the session until the transaction ends. SQLite has one writer anyway.
SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2;
