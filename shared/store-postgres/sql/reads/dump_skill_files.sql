-- The length of every file of every version.
SELECT f.tenant, f.name, f.hash, f.path, length(f.content)::bigint AS bytes FROM skill_files f
ORDER BY f.tenant, f.name, f.hash, f.path
