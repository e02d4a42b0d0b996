-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM memories WHERE rowid IN (
    SELECT rowid FROM memories WHERE tenant = $1 LIMIT $2
);
