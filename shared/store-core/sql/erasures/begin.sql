-- Records that a session is being deleted; an existing record is left unchanged.
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $3, $3)
ON CONFLICT (tenant, session_id) DO NOTHING;
