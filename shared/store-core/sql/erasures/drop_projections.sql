-- Removes the oldest projections, at most $3.
DELETE FROM projections WHERE rowid IN (
    SELECT rowid FROM projections
    WHERE tenant = $1 AND session_id = $2
    ORDER BY from_seq
    LIMIT $3
);
