-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM pauses WHERE rowid IN (
    SELECT rowid FROM pauses WHERE tenant = $1 LIMIT $2
);
