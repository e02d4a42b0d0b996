-- Locks the session until the transaction ends; no row if another transaction has it locked. SQLite
-- has a single writer, and does not run this.
SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2 {lock_free};
