-- Adds the newest version of an agent whose row is locked. Publishing also takes the agent out of
-- the archive.
INSERT INTO agent_versions (tenant, name, n, spec, hash, created_at) VALUES ($1, $2, $3, $4, $5, $6);
UPDATE agents_named SET version = $3, updated_at = $6, archived_at = NULL
WHERE tenant = $1 AND name = $2;
