-- Every skill.
SELECT tenant, name, hash, source, listed FROM skills ORDER BY tenant, name;
