-- Begins a session whose messages arrive page by page. It is not visible, and from $4 on it is
-- removed like a deleted one.
INSERT INTO session_hot (tenant, session_id, pool, lifecycle) VALUES ($1, $2, $3, 2)
ON CONFLICT (tenant, session_id) DO NOTHING;
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $4, $5)
ON CONFLICT (tenant, session_id) DO NOTHING;
