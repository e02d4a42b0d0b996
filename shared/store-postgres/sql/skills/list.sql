-- The current versions of the listed skills by name, after $2, at most $3.
SELECT v.name, v.hash, v.source, v.body, v.created_at
FROM skills s
JOIN skill_versions v ON v.tenant = s.tenant AND v.name = s.name AND v.hash = s.hash
WHERE s.tenant = $1 AND s.name > $2 AND s.listed
ORDER BY s.name LIMIT $3;
