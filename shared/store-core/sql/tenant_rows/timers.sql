-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM timers WHERE rowid IN (
    SELECT rowid FROM timers WHERE tenant = $1 LIMIT $2
);
