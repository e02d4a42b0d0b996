-- Records the event of a step; does nothing if it is already recorded.
INSERT INTO webhook_events (tenant, source, n, type, resource, at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, source, n) DO NOTHING;
