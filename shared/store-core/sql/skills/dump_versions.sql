-- Every version of every skill.
SELECT tenant, name, hash, source, body, created_at FROM skill_versions ORDER BY tenant, name, hash;
