-- Nobody else publishes or removes a skill of this name until the transaction ends.
INSERT INTO skills (tenant, name, hash, source, listed, updated_at) VALUES ($1, $2, $3, $4, 0, $5)
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name;
