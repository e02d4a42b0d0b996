-- Creates the row of an agent's name if it does not exist, and locks it until the transaction ends.
INSERT INTO agents_named (tenant, name, version, created_at, updated_at) VALUES ($1, $2, 0, $3, $3)
ON CONFLICT (tenant, name) DO NOTHING;
