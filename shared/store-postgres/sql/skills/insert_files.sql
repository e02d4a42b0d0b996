-- Stores the files of a version.
INSERT INTO skill_files (tenant, name, hash, path, content)
SELECT $1, $2, $3, f.path, f.content FROM unnest($4::text[], $5::bytea[]) AS f (path, content);
