-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM steps WHERE (tenant, session_id, n) IN (
    SELECT tenant, session_id, n FROM steps WHERE tenant = $1 LIMIT $2
);
