-- Records an extraction; does nothing if it is already recorded.
INSERT INTO extractions (tenant, send_id, session_id, pool, namespace, spec, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, send_id) DO NOTHING;
