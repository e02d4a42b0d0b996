-- Removes the first usage rows of a send, at most $3.
DELETE FROM usage_rows
WHERE tenant = $1 AND send_id = $2 AND (round, attempt) IN (
    SELECT round, attempt FROM usage_rows
    WHERE tenant = $1 AND send_id = $2
    ORDER BY round, attempt
    LIMIT $3
);
