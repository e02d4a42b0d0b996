-- The length of every file of every version.
SELECT tenant, name, hash, path, length(content) AS bytes FROM skill_files
ORDER BY tenant, name, hash, path;
