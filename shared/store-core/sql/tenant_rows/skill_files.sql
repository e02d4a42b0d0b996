-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM skill_files WHERE rowid IN (
    SELECT rowid FROM skill_files WHERE tenant = $1 LIMIT $2
);
