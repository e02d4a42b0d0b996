-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM agent_aliases WHERE (tenant, name, alias) IN (
    SELECT tenant, name, alias FROM agent_aliases WHERE tenant = $1 LIMIT $2
);
