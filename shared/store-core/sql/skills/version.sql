-- A version, whether or not its name is listed.
SELECT name, hash, source, body, created_at FROM skill_versions
WHERE tenant = $1 AND name = $2 AND hash = $3;
