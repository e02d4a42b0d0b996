-- Nobody else changes the session until the transaction ends; no row where someone else has it locked.
-- SQLite has one writer, and does not run this.
SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2 {lock_free};
