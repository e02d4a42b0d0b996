-- Removes the oldest folds, at most $3.
DELETE FROM folds WHERE rowid IN (
    SELECT rowid FROM folds
    WHERE tenant = $1 AND session_id = $2
    ORDER BY n
    LIMIT $3
);
