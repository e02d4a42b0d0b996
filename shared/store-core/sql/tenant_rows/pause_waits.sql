-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM pause_waits WHERE rowid IN (
    SELECT rowid FROM pause_waits WHERE tenant = $1 LIMIT $2
);
