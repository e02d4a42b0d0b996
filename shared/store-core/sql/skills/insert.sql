-- Stores a version.
INSERT INTO skill_versions (tenant, name, hash, source, body, created_at) VALUES ($1, $2, $3, $4, $5, $6);
