-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM skill_faults WHERE (tenant, folder) IN (
    SELECT tenant, folder FROM skill_faults WHERE tenant = $1 LIMIT $2
);
