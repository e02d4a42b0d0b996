-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM lists WHERE (tenant, "list") IN (
    SELECT tenant, "list" FROM lists WHERE tenant = $1 LIMIT $2
);
