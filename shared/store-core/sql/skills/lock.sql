-- Locks a name: nobody else publishes or removes a skill under it until the transaction ends.
INSERT INTO skills (tenant, name, hash, source, listed, updated_at) VALUES ($1, $2, $3, $4, 0, $5)
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name;
