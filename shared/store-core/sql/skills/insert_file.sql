-- Stores a file of a version.
INSERT INTO skill_files (tenant, name, hash, path, content) VALUES ($1, $2, $3, $4, $5);
