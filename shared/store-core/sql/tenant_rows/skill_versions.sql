-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM skill_versions WHERE (tenant, name, hash) IN (
    SELECT tenant, name, hash FROM skill_versions WHERE tenant = $1 LIMIT $2
);
