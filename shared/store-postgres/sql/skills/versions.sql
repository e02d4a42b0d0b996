-- The versions of a name, newest first.
SELECT hash, source, created_at FROM skill_versions WHERE tenant = $1 AND name = $2
ORDER BY created_at DESC, hash LIMIT $3;
