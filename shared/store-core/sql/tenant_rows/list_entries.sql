-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM list_entries WHERE rowid IN (
    SELECT rowid FROM list_entries WHERE tenant = $1 LIMIT $2
);
