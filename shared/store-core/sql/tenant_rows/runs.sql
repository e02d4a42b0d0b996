-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM runs WHERE rowid IN (
    SELECT rowid FROM runs WHERE tenant = $1 LIMIT $2
);
