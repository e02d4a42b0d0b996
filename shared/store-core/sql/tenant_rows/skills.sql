-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM skills WHERE (tenant, name) IN (
    SELECT tenant, name FROM skills WHERE tenant = $1 LIMIT $2
);
