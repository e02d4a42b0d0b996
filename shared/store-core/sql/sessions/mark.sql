-- Takes a session away from everyone and notes that the rest is to be removed. Its tombstone, its sends
-- and its steps stay.
DELETE FROM sessions WHERE tenant = $1 AND session_id = $2;
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $3, $3)
ON CONFLICT (tenant, session_id) DO UPDATE SET due_at = excluded.due_at, deleted_at = excluded.deleted_at;
