-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM erasures WHERE (tenant, session_id) IN (
    SELECT tenant, session_id FROM erasures WHERE tenant = $1 LIMIT $2
);
