-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM open_sends WHERE rowid IN (
    SELECT rowid FROM open_sends WHERE tenant = $1 LIMIT $2
);
