-- Removes the first inbox items, at most $3.
DELETE FROM inbox WHERE rowid IN (
    SELECT rowid FROM inbox
    WHERE tenant = $1 AND session_id = $2
    ORDER BY item_id
    LIMIT $3
);
