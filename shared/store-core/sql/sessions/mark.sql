-- Makes a session inaccessible and records that its other rows are to be removed. Its tombstone,
-- sends and steps remain.
DELETE FROM sessions WHERE tenant = $1 AND session_id = $2;
DELETE FROM session_names WHERE tenant = $1 AND session_id = $2;
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $3, $3)
ON CONFLICT (tenant, session_id) DO UPDATE SET due_at = excluded.due_at, deleted_at = excluded.deleted_at;
