-- Records that a session is being deleted; an existing record is left unchanged.
-- Index: erasures_pkey.
INSERT INTO erasures (tenant, session_id, due_at, deleted_at)
VALUES ($1::integer, $2::uuid, $3::bigint, $3::bigint)
ON CONFLICT DO NOTHING
