-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM tool_calls WHERE rowid IN (
    SELECT rowid FROM tool_calls WHERE tenant = $1 LIMIT $2
);
