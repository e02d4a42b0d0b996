-- Every version of every skill.
SELECT v.tenant, v.name, v.hash, v.source, v.body, v.created_at FROM skill_versions v
ORDER BY v.tenant, v.name, v.hash
