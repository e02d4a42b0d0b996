-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM agents_named WHERE (tenant, name) IN (
    SELECT tenant, name FROM agents_named WHERE tenant = $1 LIMIT $2
);
