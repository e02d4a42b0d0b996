-- Records that agents of the tenant $1 have limits. Locks the row under which seats are taken. By
-- the primary key.
INSERT INTO seat_limits (tenant, agents, set_at) VALUES ($1, 1, $2)
ON CONFLICT (tenant) DO UPDATE SET agents = excluded.agents;
