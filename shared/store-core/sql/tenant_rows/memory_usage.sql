-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM memory_usage WHERE (tenant, call_id) IN (
    SELECT tenant, call_id FROM memory_usage WHERE tenant = $1 LIMIT $2
);
