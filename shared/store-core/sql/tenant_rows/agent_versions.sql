-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM agent_versions WHERE (tenant, name, n) IN (
    SELECT tenant, name, n FROM agent_versions WHERE tenant = $1 LIMIT $2
);
