-- Every skill.
SELECT s.tenant, s.name, s.hash, s.listed FROM skills s ORDER BY s.tenant, s.name
