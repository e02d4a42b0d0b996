-- Deleted sessions whose erasure is due at $1, after ($2, $3, $4), at most $5; by erasures_due.
SELECT tenant, session_id, due_at
FROM erasures
WHERE due_at <= $1 AND due_at >= $2 AND (due_at, tenant, session_id) > ($2, $3, $4)
ORDER BY due_at, tenant, session_id
LIMIT $5;
