-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM run_asks WHERE rowid IN (
    SELECT rowid FROM run_asks WHERE tenant = $1 LIMIT $2
);
