-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM run_steps WHERE rowid IN (
    SELECT rowid FROM run_steps WHERE tenant = $1 LIMIT $2
);
