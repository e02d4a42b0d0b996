-- Records that agents of a tenant have limits. Locks the row under which its seats are taken.
-- Index: seat_limits_pkey.
INSERT INTO seat_limits AS l (tenant, agents, set_at) VALUES ($1::integer, TRUE, $2::bigint)
ON CONFLICT (tenant) DO UPDATE SET agents = excluded.agents
