-- Notes that a session is being deleted.
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $3, $3)
ON CONFLICT DO NOTHING;
