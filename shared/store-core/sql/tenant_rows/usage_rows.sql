-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM usage_rows WHERE (tenant, send_id, round, attempt) IN (
    SELECT tenant, send_id, round, attempt FROM usage_rows WHERE tenant = $1 LIMIT $2
);
