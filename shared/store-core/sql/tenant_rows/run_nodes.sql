-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM run_nodes WHERE rowid IN (
    SELECT rowid FROM run_nodes WHERE tenant = $1 LIMIT $2
);
