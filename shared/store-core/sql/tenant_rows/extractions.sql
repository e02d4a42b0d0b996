-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM extractions WHERE (tenant, send_id) IN (
    SELECT tenant, send_id FROM extractions WHERE tenant = $1 LIMIT $2
);
